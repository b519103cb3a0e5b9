//! Calls and replies by hand: an encoder and a reader of their own, so that a
//! mistake that both directions of wire/xdr share cannot hide.

use anyhow::{Context, Result, ensure};

/// NFS in the numbers of RFC 1813.
pub(crate) const NFS: u32 = 100_003;
/// MOUNT in the numbers of RFC 1813.
pub(crate) const MOUNT: u32 = 100_005;

/// Bytes of a record as they are put one behind the other.
#[derive(Clone, Default)]
pub(crate) struct Hand(pub(crate) Vec<u8>);

impl Hand {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Bytes as they are.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Variable-length opaque data: length, bytes, zeros up to a multiple of 4.
    pub(crate) fn opaque(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut hand = self.u32(length).raw(bytes);
        while !hand.0.len().is_multiple_of(4) {
            hand.0.push(0);
        }
        hand
    }

    /// `sattr3` that sets a mode and nothing else.
    pub(crate) fn mode(self, mode: u32) -> Self {
        self.u32(1).u32(mode).u32(0).u32(0).u32(0).u32(0).u32(0)
    }
}

/// A call up to its credential.
pub(crate) fn bare(xid: u32, program: u32, version: u32, procedure: u32) -> Hand {
    let call = 0;
    let rpc_version = 2;
    let hand = Hand::default().u32(xid).u32(call).u32(rpc_version);
    hand.u32(program).u32(version).u32(procedure)
}

/// A call of root with AUTH_SYS, up to its arguments.
pub(crate) fn call(xid: u32, program: u32, version: u32, procedure: u32) -> Hand {
    let sys = Hand::default().u32(7).opaque(b"hand").u32(0).u32(0).u32(0);
    let hand = bare(xid, program, version, procedure);
    hand.u32(1).opaque(&sys.0).u32(0).u32(0)
}

/// A call with AUTH_NONE, up to its arguments.
pub(crate) fn anonymous(xid: u32, program: u32, version: u32, procedure: u32) -> Hand {
    let hand = bare(xid, program, version, procedure);
    hand.u32(0).u32(0).u32(0).u32(0)
}

/// Reads a record from its front.
pub(crate) struct Eye<'a>(pub(crate) &'a [u8]);

impl<'a> Eye<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length).context("it ends early")?;
        self.0 = rest;
        Ok(front)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into()?))
    }

    pub(crate) fn opaque(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.u32()?)?;
        let bytes = self.take(length)?;
        let padding = self.take(length.next_multiple_of(4) - length)?;
        ensure!(padding.iter().all(|byte| *byte == 0), "padding is not zero");
        Ok(bytes)
    }

    /// The next word must be this one.
    pub(crate) fn is(&mut self, expected: u32, what: &str) -> Result<()> {
        let found = self.u32()?;
        ensure!(found == expected, "{what}: {found}, not {expected}");
        Ok(())
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<()> {
        ensure!(self.0.is_empty(), "{} bytes too many", self.0.len());
        Ok(())
    }

    /// The header of an accepted call, up to `accept_stat`.
    pub(crate) fn accepted(&mut self, xid: u32) -> Result<()> {
        self.is(xid, "xid")?;
        self.is(1, "message type")?;
        self.is(0, "reply_stat")?;
        self.is(0, "verifier flavour")?;
        self.is(0, "verifier length")
    }

    /// The header of a call that was carried out.
    pub(crate) fn success(&mut self, xid: u32) -> Result<()> {
        self.accepted(xid)?;
        self.is(0, "accept_stat")
    }

    /// `post_op_attr`: skipped; type and size of the object if they are there.
    pub(crate) fn attributes(&mut self) -> Result<Option<(u32, u64)>> {
        if self.u32()? == 0 {
            return Ok(None);
        }
        let file_type = self.u32()?;
        self.take(4 * 4)?; // Mode, links, uid, gid.
        let size = self.u64()?;
        self.take(84 - 28)?;
        Ok(Some((file_type, size)))
    }

    /// `wcc_data`: whether there was anything before, and what is after.
    pub(crate) fn wcc(&mut self) -> Result<(bool, Option<(u32, u64)>)> {
        let has_before = self.u32()? == 1;
        if has_before {
            self.take(24)?;
        }
        Ok((has_before, self.attributes()?))
    }
}
