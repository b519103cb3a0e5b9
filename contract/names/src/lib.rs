//! Names of things: what parts call nodes, sites, files, objects and bytes.
//!
//! Every layout that leaves the process (handles, extents, object ids) is
//! defined here with its byte table, and carries a format version.

mod block_map;
mod capability;
mod extent;
mod file_capability;
mod handle;
mod ids;
mod layout;
mod object;
mod proof;
mod spread;
mod table;

pub use block_map::{
    BlockPiece, MAP_COLUMNS_MAX, MAP_WINDOW_BLOCKS, MAP_WINDOWS_MAX, MapFragment, UNMAPPED,
};
pub use capability::{Capability, CapabilityKey, Rights};
pub use extent::Extent;
pub use file_capability::{FileCapability, MintingKey, Scope};
pub use handle::{FileHandle, HANDLE_BYTES, HandleError, HandleKey, HandleKeys};
pub use ids::{
    Epoch, ExportId, FileId, FileRef, HostId, Incarnation, NUMBERS_MAX, NodeId, SetId, SiteId,
    Slot, Version, VolumeId,
};
pub use layout::{
    ColumnPiece, LayoutClass, SEGMENT_BYTES, SMALL_FILE_THRESHOLD_BYTES, STRIPE_UNIT_BYTES,
};
pub use object::{OBJECT_ID_BYTES, ObjectClass, ObjectId};
pub use proof::{Proof, ProofKey};
pub use spread::Spread;
pub use table::{Hosts, ReplicaSet, RoutingTable, SITES, SLOTS, SiteRecord};
