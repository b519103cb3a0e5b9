//! SCSI as a disk speaks it, as bytes and types: commands (CDBs), sense data, the data that
//! INQUIRY, MODE SENSE, READ CAPACITY and others return, and the lists that commands bring.
//!
//! By SAM-5, SPC-4 and SBC-3. Bytes are big-endian throughout. Nothing here knows of a
//! transport, does I/O or reads a clock; nothing panics on bytes of an initiator.

mod block;
mod bytes;
mod cdb;
mod copy;
mod inquiry;
mod lun;
mod mode;
mod opcodes;
mod reservation;
mod sense;
mod token;

pub use block::{
    CapacityData, LbaStatus, Provisioning, UnmapDescriptor, capacity_10, capacity_16, lba_status,
    report_luns, unmap_list,
};
pub use cdb::{
    Access, BlockRange, ByteCheck, CdbError, Command, ModeForm, OpcodeQuery, PageControl, parse_cdb,
};
pub use copy::{
    COPY_LIST_BYTES_MAX, COPY_MANAGER_UNIT, COPY_SEGMENTS_MAX, COPY_TARGETS_MAX, CopyList,
    CopyResults, CopySegment, CopyState, CopyTarget, copy_list, copy_parameters, copy_status,
    failed_segment_details,
};
pub use inquiry::{
    BlockLimits, Identity, Portal, VpdPage, block_characteristics, block_limits,
    device_identification, logical_block_provisioning, standard_inquiry, supported_pages,
    third_party_copy, unit_naa, unit_serial_number,
};
pub use lun::LogicalUnit;
pub use mode::{ModeError, ModePages, ModeParameters};
pub use opcodes::{OPCODES, Opcode, one_opcode, supported_opcodes, supported_task_management};
pub use reservation::{
    RegistrantStatus, ReserveIn, ReserveOut, ReserveOutAction, ReserveType, full_status,
    parse_reserve_out, read_keys, read_reservation, report_capabilities,
};
pub use sense::{AdditionalSense, FieldPointer, Forwarded, Sense, SenseKey, Status};
pub use token::{
    PopulateToken, Represented, RodToken, TOKEN_BYTES, TOKEN_COPY_BYTES_MAX, TOKEN_LIST_BYTES_MAX,
    TOKEN_MAC_AT, TOKEN_RANGES_MAX, TOKEN_SECONDS, TokenBytes, TokenProgress, WriteUsingToken,
    populate_token, read_token, token_information, write_using_token,
};
