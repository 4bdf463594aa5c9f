//! Figures as JSON objects, with names and in an order that programs rely on.
//!
//! Invariant: bytes and counts are integers, and a figure that could not be measured is null.
//! Locks: none.

use serde_json::{Value, json};
use serve::fuse::{Fuse, FuseWay};
use zram::{
    Attribute, Device, SharedStat, Tier, TierStat, Training, TroubleStat, UnitStat, Verdict,
    ZramCheck, ZramStat,
};
use zsmalloc::{ClassRow, ClassTable};

/// One device in the form that `stat --json` prints.
pub(crate) fn stat(stat: &ZramStat) -> Value {
    json!({
        "name": stat.name,
        "algorithm": stat.algorithm,
        "shuffle": if stat.shuffle { "auto" } else { "off" },
        "chain_order": stat.chain_order,
        "disksize": stat.disksize,
        "initstate": stat.initstate,
        "orig_data_size": stat.orig_data_size,
        "compr_data_size": stat.compr_data_size,
        "mem_used_total": stat.mem_used_total,
        "mem_limit": stat.mem_limit,
        "mem_used_max": stat.mem_used_max,
        "same_pages": stat.same_pages,
        "shared": stat.shared.map(shared),
        "units": stat.units.map(units),
        "pages_compacted": stat.pages_compacted,
        "compaction_yields": stat.compaction_yields,
        "huge_pages": stat.huge_pages,
        "huge_pages_since": stat.huge_pages_since,
        "object_bytes_resident": stat.object_bytes_resident,
        "free_bytes_held": stat.free_bytes_held,
        "metadata_bytes": stat.metadata_bytes(),
        "metadata": {
            "slot_table": stat.metadata.slot_table,
            "handle_table": stat.metadata.handle_table,
            "descriptors": stat.metadata.descriptors,
            "frame_table": stat.metadata.frame_table,
            "buffers": stat.metadata.buffers,
            "codec_contexts": stat.metadata.codec_contexts,
        },
        "pending_bytes": stat.pending_bytes,
        "accounted_bytes": stat.accounted_bytes(),
        "resident_bytes": stat.resident_bytes,
        "page_table_bytes": stat.page_table_bytes,
        "overhead_all_in": stat.overhead_all_in(),
    })
}

/// The same, with the figures that the kernel shows in other attributes.
pub(crate) fn device(device: &Device, stat: &ZramStat) -> Value {
    let mut answer = self::stat(stat);
    let text = |attribute| device.show(attribute).unwrap_or_default().trim_end().to_owned();
    answer["io_stat"] = columns(
        &text(Attribute::IoStat),
        &["failed_reads", "failed_writes", "invalid_io", "notify_free"],
    );
    if let Some(disk) = device.disk() {
        answer["trouble_stat"] = troubles(&disk.trouble_stat());
        let study = disk.config().study;
        answer["design"] = study.design.name().into();
        answer["free"] = study.free.name().into();
    }
    answer["bd_stat"] = columns(&text(Attribute::BdStat), &["bd_count", "bd_reads", "bd_writes"]);
    let blocks = device.disk().map(|disk| disk.bd_stat()).unwrap_or_default();
    answer["bd_stat"]["bd_pending"] = blocks.pending.into();
    answer["bd_stat"]["bd_quarantined"] = blocks.quarantined.into();
    for attribute in SETTINGS {
        let text = text(attribute);
        answer[attribute.name()] = text.parse::<u64>().map_or_else(|_| text.into(), Value::from);
    }
    answer["remote_backing"] = remote_backing(device);
    answer["memory_target"] = memory_target(device);
    answer["tiers"] = device.disk().and_then(|disk| disk.tier_stat()).map_or(Value::Null, tiers);
    answer["holders"] = device.holders().into();
    answer
}

/// Counts of what went wrong, by cause.
fn troubles(stat: &TroubleStat) -> Value {
    json!({
        "over_limit": stat.over_limit,
        "no_memory": stat.no_memory,
        "damaged": stat.damaged,
        "backing_full": stat.backing_full,
        "backing_no_space": stat.backing_no_space,
        "backing_failed": stat.backing_failed,
    })
}

/// The connection to a backing device of an NBD server. Null if it is no such device.
fn remote_backing(device: &Device) -> Value {
    device.remote_backing().map_or(Value::Null, |report| {
        json!({
            "connected": report.connected,
            "reconnects": report.reconnects,
            "repeated_requests": report.repeated,
            "late_requests": report.late,
            "refused_requests": report.refused,
        })
    })
}

/// The memory target, and what was done to hold it. Null if there is none.
fn memory_target(device: &Device) -> Value {
    let stat = device.disk().map(|disk| disk.hold_stat()).filter(|stat| stat.target_bytes > 0);
    stat.map_or(Value::Null, |stat| {
        json!({
            "target_bytes": stat.target_bytes,
            "reached": !stat.lifted,
            "why": stat.unreached.map(|why| why.to_string()),
            "rounds": stat.rounds,
            "recompressed_pages": stat.recompressed_pages,
            "written_back_pages": stat.written_back_pages,
        })
    })
}

/// The tiers, and what was done for them.
fn tiers(stat: TierStat) -> Value {
    let pages: u64 = stat.tiers.iter().map(|tier| tier.pages).sum();
    let tier = |tier: &Tier| {
        json!({
            "algorithm": tier.algorithm,
            "generation": tier.generation,
            "pages": tier.pages,
            "bytes": tier.bytes,
            "share": tier.pages as f64 / pages.max(1) as f64,
        })
    };
    json!({
        "density": stat.density.name(),
        "off": stat.off,
        "tiers": stat.tiers.iter().map(tier).collect::<Vec<_>>(),
        "same_pages": stat.same_pages,
        "written_back_pages": stat.written_back_pages,
        "denser_pages": stat.denser,
        "faster_pages": stat.faster,
        "renewed_pages": stat.renewed,
        "cpu_us": stat.cpu_us,
        "trainings": stat.trainings,
        "training": stat.training.map(training),
        "dictionary": stat.dictionary.map(training),
    })
}

/// The objects that several pages share.
fn shared(stat: SharedStat) -> Value {
    json!({
        "pages": stat.pages,
        "objects": stat.objects,
        "bytes": stat.bytes,
        "saved_bytes": stat.saved_bytes,
    })
}

/// The units of neighbouring pages.
fn units(stat: UnitStat) -> Value {
    json!({
        "units": stat.units,
        "pages": stat.pages,
        "dead_pages": stat.dead_pages,
        "bytes": stat.bytes,
    })
}

/// The last training of tables, or of a dictionary.
fn training(training: Training) -> Value {
    let (verdict, generation) = match training.verdict {
        Verdict::Adopted(generation) => ("adopted", Some(generation)),
        Verdict::TooLittle => ("gained too little", None),
        Verdict::TooFewPages => ("too few pages", None),
        Verdict::NoPlace => ("older tables are still needed", None),
    };
    json!({
        "verdict": verdict,
        "generation": generation,
        "pages": training.pages,
        "judged": training.judged,
        "cost_before": training.cost_before,
        "cost_after": training.cost_after,
    })
}

/// Attributes that are shown as the kernel prints them, except that numbers are JSON numbers.
const SETTINGS: [Attribute; 8] = [
    Attribute::CompAlgorithm,
    Attribute::RecompAlgorithm,
    Attribute::BackingDev,
    Attribute::WritebackLimit,
    Attribute::WritebackLimitEnable,
    Attribute::WritebackBatchSize,
    Attribute::CompressedWriteback,
    Attribute::PagesPerPoolPage,
];

/// An object of the numbers in a line, under these names.
fn columns(line: &str, names: &[&str]) -> Value {
    let numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
    names.iter().zip(numbers).map(|(name, number)| ((*name).to_owned(), json!(number))).collect()
}

/// The tables of several devices. Each text has a heading, and each row names its device.
pub(crate) fn several_classes(tables: &[(String, ClassTable)]) -> Value {
    let text: String = tables.iter().map(|(name, table)| format!("{name}\n{table}\n")).collect();
    let rows = tables.iter().flat_map(|(name, table)| {
        table.rows.iter().map(move |row| {
            let mut row = class(row);
            row["device"] = name.as_str().into();
            row
        })
    });
    json!({ "text": text, "rows": rows.collect::<Vec<Value>>() })
}

/// The `classes` table, as text for people and as rows for programs.
pub(crate) fn classes(table: &ClassTable) -> Value {
    let rows: Vec<Value> = table.rows.iter().map(class).collect();
    json!({ "text": table.to_string(), "rows": rows })
}

fn class(row: &ClassRow) -> Value {
    json!({
        "class": row.class,
        "size": row.size,
        "zspages_by_fullness": row.zspages,
        "obj_allocated": row.obj_allocated,
        "obj_used": row.obj_used,
        "pages_used": row.pages_used,
        "pages_per_zspage": row.pages_per_zspage,
        "freeable": row.freeable,
    })
}

/// A mounted tree, and how its requests come.
pub(crate) fn tree(tree: &Fuse) -> Value {
    let (queues, why) = match tree.way() {
        FuseWay::IoUring { queues } => (Some(queues), None),
        FuseWay::Device(why) => (None, Some(why.to_string())),
    };
    json!({
        "directory": tree.directory(),
        "requests_by": tree.way().name(),
        "queues": queues,
        "why_not_io_uring": why,
    })
}

/// What a recount found.
pub(crate) fn check(report: &ZramCheck) -> Value {
    json!({
        "zspages": report.pool.zspages,
        "objects": report.pool.objects,
        "mem_used_total": report.pool.mem_used_total,
        "object_bytes_resident": report.pool.object_bytes_resident,
        "pages_stored": report.pages_stored,
        "pages_decoded": report.pages_decoded,
        "in_flight": report.pool.in_flight,
        "moved": report.moved,
    })
}
