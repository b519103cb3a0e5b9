//! The rc file of the historic tools, `~/.xndrc`: a word and its values on each line.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use crate::{Address, quantity};

/// Longest rc file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What an rc file says. Words that mean nothing here are passed over.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rc {
    pub(crate) lbone: Option<Address>,
    pub(crate) location: Option<String>,
    /// In seconds.
    pub(crate) duration_seconds: Option<u64>,
    pub(crate) is_volatile: Option<bool>,
    pub(crate) e2e_blocksize: Option<u64>,
    pub(crate) mapping_bytes: Option<u64>,
    pub(crate) fragments: Option<u64>,
    pub(crate) copies: Option<usize>,
    pub(crate) threads: Option<usize>,
    pub(crate) depots_max: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) depots: Vec<Address>,
}

impl Rc {
    /// Reads a file that was named, or the user's own if there is one.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self> {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".xndrc"));
        let Some(path) = named.map(PathBuf::from).or_else(home) else {
            return Ok(Self::default());
        };
        let shown = path.display();
        match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => {
                return Ok(Self::default());
            }
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(anyhow!("{shown} is too long"));
            }
            _ => {}
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        Self::parse(&text).map_err(|error| anyhow!("{shown}: {error}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut rc = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (word, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim().trim_matches('"');
            rc.set(word, value)
                .map_err(|error| format!("line {}: {error}", number + 1))?;
        }
        Ok(rc)
    }

    fn set(&mut self, word: &str, value: &str) -> Result<(), String> {
        fn number<T: std::str::FromStr>(value: &str) -> Result<Option<T>, String> {
            let number = value.parse();
            number
                .map(Some)
                .map_err(|_| format!("{value:?} is no number"))
        }
        let address = || -> Result<Address, String> {
            let (host, port) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
            let text = match port.trim() {
                "" => host.to_owned(),
                port => format!("{host}:{port}"),
            };
            text.parse().map_err(|error| format!("{error}"))
        };
        match word {
            "LBONE_SERVER" => {
                let mut lbone = address()?;
                if !value.contains(char::is_whitespace) {
                    lbone.port = crossdock_lbone::PORT;
                }
                self.lbone = Some(lbone);
            }
            "LOCATION" => self.location = Some(value.to_owned()),
            "DURATION" => {
                self.duration_seconds = Some(quantity::duration(value)?.as_secs());
            }
            "DURATION_DAYS" => {
                let days: Option<u64> = number(value)?;
                self.duration_seconds = days.map(|days| days.saturating_mul(86400));
            }
            "STORAGE_TYPE" => self.is_volatile = Some(value.eq_ignore_ascii_case("soft")),
            "E2E_BLOCKSIZE" => self.e2e_blocksize = Some(quantity::bytes(value)?),
            "DATA_BLOCKSIZE" => self.mapping_bytes = Some(quantity::bytes(value)?),
            "FRAGMENTS_PER_FILE" => self.fragments = number(value)?,
            "COPIES" => self.copies = number(value)?,
            "THREADS" => self.threads = number(value)?,
            "MAXDEPOTS" => self.depots_max = number(value)?,
            "MAX_INTERNAL_BUFFER" => self.memory_bytes = Some(quantity::bytes(value)?),
            "TIMEOUT" => self.timeout_seconds = Some(quantity::duration(value)?.as_secs()),
            "DEPOT" => self.depots.push(address()?),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the words of an rc file are understood, unknown ones passed over, and what is
    /// wrong is told with its line.
    #[test]
    fn words_of_an_rc_file_are_understood() {
        let text = "# mine\nLBONE_SERVER lbone.example 6767\nLOCATION \"zip= 37901\"\nDEPOT a 7000\n\
                    DEPOT b\nSTORAGE_TYPE SOFT\nDATA_BLOCKSIZE 10M\nDURATION 2h\nDEMO 0\n\nCOPIES 3";
        let rc = Rc::parse(text).unwrap();
        assert_eq!(rc.lbone.unwrap().to_string(), "lbone.example:6767");
        assert_eq!(rc.location.as_deref(), Some("zip= 37901"));
        let depots: Vec<_> = rc.depots.iter().map(ToString::to_string).collect();
        assert_eq!(depots, ["a:7000", "b:6714"]);
        assert_eq!(
            (rc.is_volatile, rc.mapping_bytes),
            (Some(true), Some(10 << 20))
        );
        assert_eq!((rc.duration_seconds, rc.copies), (Some(7200), Some(3)));
        let wrong = Rc::parse("DEMO 1\nCOPIES many");
        assert!(wrong.unwrap_err().starts_with("line 2"));
    }
}
