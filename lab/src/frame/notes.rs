//! Sentences below a table.
//!
//! Invariant: no sentence is there twice.

use crate::ground::LabError;

/// What was found; a note instead where something is missing that a study can do without.
pub(crate) fn present<T>(
    found: Result<T, LabError>,
    notes: &mut Vec<String>,
) -> Result<Option<T>, LabError> {
    match found {
        Err(error @ LabError::Missing { .. }) => {
            note(notes, error.to_string());
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// Adds a sentence, once.
pub(crate) fn note(notes: &mut Vec<String>, sentence: String) {
    if !notes.contains(&sentence) {
        notes.push(sentence);
    }
}
