//! Requests as they are read: each has its own fields, and any other field is refused.
//!
//! For a variant without braces, derived code ignores every field beside `cmd`. A misspelt field,
//! or one for a later server, would be lost silently. For a variant with empty braces, derived code
//! refuses such a field and names it.
//!
//! Invariant: a written [`super::Request`] is read back as the same request. Locks: none.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    Ping {},
    Stat {
        #[serde(default)]
        device: Option<String>,
    },
    Classes {
        #[serde(default)]
        device: Option<String>,
    },
    Pagetypeinfo {},
    Get {
        attribute: String,
    },
    Set {
        attribute: String,
        #[serde(default)]
        value: String,
    },
    Check {
        #[serde(default)]
        device: Option<String>,
    },
    Add {
        name: String,
        size: u64,
    },
    Remove {
        name: String,
    },
}

impl From<Request> for super::Request {
    fn from(request: Request) -> super::Request {
        match request {
            Request::Ping {} => super::Request::Ping,
            Request::Stat { device } => super::Request::Stat { device },
            Request::Classes { device } => super::Request::Classes { device },
            Request::Pagetypeinfo {} => super::Request::Pagetypeinfo,
            Request::Get { attribute } => super::Request::Get { attribute },
            Request::Set { attribute, value } => super::Request::Set { attribute, value },
            Request::Check { device } => super::Request::Check { device },
            Request::Add { name, size } => super::Request::Add { name, size },
            Request::Remove { name } => super::Request::Remove { name },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;

    /// `{"cmd":"ping","x":1}` used to be answered like a plain ping.
    #[test]
    fn a_field_that_a_request_does_not_have_is_refused_by_name() {
        for cmd in ["ping", "stat", "classes", "pagetypeinfo", "check"] {
            let read = |text: String| serde_json::from_str::<Request>(&text);
            let known = read(format!(r#"{{"cmd":"{cmd}"}}"#)).expect("a request");
            let written = serde_json::to_string(&known).expect("it has a JSON form");
            assert_eq!(written, format!(r#"{{"cmd":"{cmd}"}}"#));
            let refused = read(format!(r#"{{"cmd":"{cmd}","colour":1}}"#)).expect_err("a field");
            assert!(refused.to_string().contains("`colour`"), "{cmd}: {refused}");
            let twice = read(format!(r#"{{"cmd":"{cmd}","cmd":"stat"}}"#)).expect_err("twice");
            assert!(twice.to_string().contains("`cmd`"), "{cmd}: {twice}");
        }
        let get = r#"{"cmd":"get","attribute":"a","value":"b"}"#;
        let refused = serde_json::from_str::<Request>(get).expect_err("a field");
        assert!(refused.to_string().contains("`value`"), "{refused}");
        let set = r#"{"cmd":"set","attribute":"a","valeu":"b"}"#;
        let refused = serde_json::from_str::<Request>(set).expect_err("a field");
        assert!(refused.to_string().contains("`valeu`"), "{refused}");
    }

    #[test]
    fn a_request_about_one_device_is_read_back() {
        for text in [
            r#"{"cmd":"stat","device":"a"}"#,
            r#"{"cmd":"classes","device":"a"}"#,
            r#"{"cmd":"check","device":"a"}"#,
            r#"{"cmd":"add","name":"a","size":4096}"#,
            r#"{"cmd":"remove","name":"a"}"#,
        ] {
            let read = serde_json::from_str::<Request>(text).expect("a request");
            assert_eq!(serde_json::to_string(&read).expect("it has a JSON form"), text);
        }
        for text in [r#"{"cmd":"add","name":"a"}"#, r#"{"cmd":"add","name":"a","size":-1}"#] {
            serde_json::from_str::<Request>(text).expect_err(text);
        }
    }
}
