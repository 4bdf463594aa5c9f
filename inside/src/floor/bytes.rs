//! Copies, fills and compares bytes: what the compiler calls by the names of a C library.
//!
//! A program may have functions of these names itself, and the system's linker would bind our
//! calls to them. Those of a sanitizer or a profiler touch memory of the program, which may be out,
//! and the thread that brings pages in would wait for itself. So these are our own, in assembly. In
//! Rust the compiler might see what a loop does, and call the function that the loop is in.
//!
//! ```text
//!   < 16 bytes   two moves that may overlap, of 8, 4, 2 or 1
//!   <= 32        two moves of 16
//!   <= 512       moves of 16; the part at the end, or at the start, was read before
//!   more         rep movsb, rep stosb
//! ```
//!
//! Invariant: no byte outside of the ranges is touched, and every read of a byte comes before the
//! write that changes it. The direction flag is clear, because every caller leaves it so.
//!
//! Lock: none.

use core::arch::naked_asm;
use core::ffi::c_int;

/// `memcpy`. It is right for ranges that overlap too, if the copy lies below.
///
/// # Safety
///
/// That of `memcpy(3)`, or of `memmove(3)` if `to` is below `from`.
#[unsafe(naked)]
#[cfg_attr(inside_program, unsafe(export_name = "memcpy"))]
unsafe extern "C" fn copy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb 3f",
        "movups xmm1, [rsi + rdx - 16]",
        "cmp rdx, 32",
        "ja 2f",
        "movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        "2:",
        "cmp rdx, 512",
        "ja 6f",
        "lea r8, [rdi + rdx - 16]",
        "5:",
        "movups xmm0, [rsi]",
        "movups [rdi], xmm0",
        "add rsi, 16",
        "add rdi, 16",
        "cmp rdi, r8",
        "jb 5b",
        "movups [r8], xmm1",
        "ret",
        "6:",
        "mov rcx, rdx",
        "rep movsb",
        "ret",
        // Fewer than 16.
        "3:",
        "cmp rdx, 8",
        "jb 4f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "4:",
        "cmp rdx, 4",
        "jb 7f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        "7:",
        "cmp rdx, 2",
        "jb 8f",
        "movzx ecx, word ptr [rsi]",
        "movzx r8d, word ptr [rsi + rdx - 2]",
        "mov [rdi], cx",
        "mov [rdi + rdx - 2], r8w",
        "ret",
        "8:",
        "test rdx, rdx",
        "je 9f",
        "movzx ecx, byte ptr [rsi]",
        "mov [rdi], cl",
        "9:",
        "ret",
    )
}

/// `memmove`.
///
/// # Safety
///
/// That of `memmove(3)`.
#[unsafe(naked)]
#[cfg_attr(inside_program, unsafe(export_name = "memmove"))]
unsafe extern "C" fn shift(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    naked_asm!(
        // From the start, unless the copy lies above and overlaps. Up to 32 bytes are all read
        // before the first is written.
        "mov rax, rdi",
        "sub rax, rsi",
        "cmp rax, rdx",
        "jae {copy}",
        "cmp rdx, 32",
        "jbe {copy}",
        "mov rax, rdi",
        "movups xmm1, [rsi]",
        "lea rcx, [rdx - 16]",
        "2:",
        "movups xmm0, [rsi + rcx]",
        "movups [rdi + rcx], xmm0",
        "sub rcx, 16",
        "ja 2b",
        "movups [rdi], xmm1",
        "ret",
        copy = sym copy,
    )
}

/// `memset`.
///
/// # Safety
///
/// That of `memset(3)`.
#[unsafe(naked)]
#[cfg_attr(inside_program, unsafe(export_name = "memset"))]
unsafe extern "C" fn fill(at: *mut u8, byte: c_int, len: usize) -> *mut u8 {
    naked_asm!(
        "mov r9, rdi",
        "movzx eax, sil",
        "cmp rdx, 512",
        "ja 4f",
        "mov rcx, 0x0101010101010101",
        "imul rax, rcx",
        "cmp rdx, 16",
        "jb 3f",
        "movq xmm0, rax",
        "punpcklqdq xmm0, xmm0",
        "lea r8, [rdi + rdx - 16]",
        "2:",
        "movups [rdi], xmm0",
        "add rdi, 16",
        "cmp rdi, r8",
        "jb 2b",
        "movups [r8], xmm0",
        "mov rax, r9",
        "ret",
        // Fewer than 16.
        "3:",
        "cmp rdx, 8",
        "jb 5f",
        "mov [rdi], rax",
        "mov [rdi + rdx - 8], rax",
        "mov rax, r9",
        "ret",
        "4:",
        "mov rcx, rdx",
        "rep stosb",
        "mov rax, r9",
        "ret",
        "5:",
        "test rdx, rdx",
        "je 7f",
        "6:",
        "mov [rdi + rdx - 1], al",
        "dec rdx",
        "jne 6b",
        "7:",
        "mov rax, r9",
        "ret",
    )
}

/// `memcmp`.
///
/// # Safety
///
/// That of `memcmp(3)`.
#[unsafe(naked)]
#[cfg_attr(inside_program, unsafe(export_name = "memcmp"))]
unsafe extern "C" fn compare(one: *const u8, other: *const u8, len: usize) -> c_int {
    naked_asm!(
        "2:",
        "cmp rdx, 16",
        "jb 3f",
        "movups xmm0, [rdi]",
        "movups xmm1, [rsi]",
        "pcmpeqb xmm0, xmm1",
        "pmovmskb eax, xmm0",
        "xor eax, 0xffff",
        "jne 4f",
        "add rdi, 16",
        "add rsi, 16",
        "sub rdx, 16",
        "jmp 2b",
        "3:",
        "test rdx, rdx",
        "je 5f",
        "movzx eax, byte ptr [rdi]",
        "movzx ecx, byte ptr [rsi]",
        "sub eax, ecx",
        "jne 6f",
        "inc rdi",
        "inc rsi",
        "dec rdx",
        "jmp 3b",
        // The lowest bit is the first byte that differs.
        "4:",
        "bsf ecx, eax",
        "movzx eax, byte ptr [rdi + rcx]",
        "movzx edx, byte ptr [rsi + rcx]",
        "sub eax, edx",
        "ret",
        "5:",
        "xor eax, eax",
        "6:",
        "ret",
    )
}

/// `bcmp`: 0 if both have the same bytes.
///
/// # Safety
///
/// That of `bcmp(3)`.
#[unsafe(naked)]
#[cfg_attr(inside_program, unsafe(export_name = "bcmp"))]
unsafe extern "C" fn differ(one: *const u8, other: *const u8, len: usize) -> c_int {
    naked_asm!("jmp {compare}", compare = sym compare)
}

/// `strlen`.
///
/// # Safety
///
/// That of `strlen(3)`.
#[unsafe(naked)]
#[cfg_attr(inside_program, unsafe(export_name = "strlen"))]
unsafe extern "C" fn length(text: *const i8) -> usize {
    naked_asm!(
        "xor eax, eax",
        "2:",
        "cmp byte ptr [rdi + rax], 0",
        "je 3f",
        "inc rax",
        "jmp 2b",
        "3:",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Around each bound of the paths, and a page.
    const LENGTHS: [usize; 33] = [
        0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129,
        255, 256, 257, 511, 512, 513, 1000, 4095, 4096,
    ];
    const ROOM: usize = 4096 + 2 * MARGIN;
    const MARGIN: usize = 600;

    fn numbers() -> Vec<u8> {
        (0..ROOM).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_are_moved_whatever_overlaps() {
        // How far the copy is from its source.
        for by in
            [-513, -100, -33, -32, -17, -16, -15, -8, -1, 0, 1, 7, 15, 16, 17, 32, 33, 513_isize]
        {
            for len in LENGTHS {
                let (mut ours, mut theirs) = (numbers(), numbers());
                let to = MARGIN.wrapping_add_signed(by);
                theirs.copy_within(MARGIN..MARGIN + len, to);
                let base = ours.as_mut_ptr();
                // SAFETY: both ranges lie in the buffer.
                let end = unsafe { shift(base.add(to), base.add(MARGIN), len) };
                assert!(ours == theirs && end == base.wrapping_add(to), "{len} bytes by {by}");
                if by <= 0 || by.unsigned_abs() >= len {
                    ours = numbers();
                    let base = ours.as_mut_ptr();
                    // SAFETY: as above; the copy lies below, or apart.
                    let end = unsafe { copy(base.add(to), base.add(MARGIN), len) };
                    assert!(ours == theirs && end == base.wrapping_add(to), "{len} bytes by {by}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_filled_and_no_others() {
        for len in LENGTHS {
            let (mut ours, mut theirs) = (numbers(), numbers());
            theirs[MARGIN..MARGIN + len].fill(0xc3);
            // SAFETY: the range lies in the buffer.
            let at = unsafe { fill(ours.as_mut_ptr().add(MARGIN), 0x5_c3, len) };
            assert!(ours == theirs && at == ours.as_mut_ptr().wrapping_add(MARGIN), "{len} bytes");
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        for len in LENGTHS {
            let (ours, mut theirs) = (numbers(), numbers());
            let both = |theirs: &[u8]| {
                let (one, other) = (ours[MARGIN..].as_ptr(), theirs[MARGIN..].as_ptr());
                // SAFETY: both have as many bytes.
                unsafe { (compare(one, other, len), differ(one, other, len)) }
            };
            assert_eq!(both(&theirs), (0, 0), "{len} bytes");
            theirs[MARGIN + len] ^= 0xff;
            assert_eq!(both(&theirs), (0, 0), "{len} bytes, and one behind them");
            for at in (0..len).rev().step_by(5) {
                let value = &mut theirs[MARGIN + at];
                *value = value.wrapping_add(128);
                let (sign, other) = both(&theirs);
                let expected = ours[MARGIN + at].cmp(&theirs[MARGIN + at]) as i32;
                assert_eq!((sign.signum(), other != 0), (expected, true), "{at} of {len} bytes");
            }
        }
    }

    #[test]
    fn a_text_ends_with_a_zero() {
        for len in LENGTHS {
            let text = [vec![b'a'; len], vec![0, b'b']].concat();
            // SAFETY: it has a zero.
            assert_eq!(unsafe { length(text.as_ptr().cast()) }, len);
        }
    }
}
