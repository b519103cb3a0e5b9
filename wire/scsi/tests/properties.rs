//! Any bytes are a command, a list, or an error; never a panic.

use crossdock_fuzzing::{scsi_cdb, scsi_lists};
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_a_command_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        scsi_cdb(&bytes);
    }

    #[test]
    fn any_bytes_are_a_list_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        scsi_lists(&bytes);
    }
}
