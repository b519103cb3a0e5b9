//! The named bounds of queues, buffers and fields (DESIGN invariant 9).
//!
//! A length from the wire is compared with its limit before anything is
//! allocated for it. Units are the last word of a name.

/// Largest NFS READ and WRITE over TCP, in bytes (rtmax, wtmax).
pub const NFS_TCP_IO_BYTES_MAX: usize = 1 << 20;

/// Largest NFS READ and WRITE over UDP, in bytes: fits one datagram with room
/// for the RPC and NFS headers.
pub const NFS_UDP_IO_BYTES_MAX: usize = 32 << 10;

/// Largest RPC record accepted over TCP, in bytes: the largest WRITE, its
/// headers and the largest file handle, credential and verifier.
pub const RPC_RECORD_BYTES_MAX: usize = NFS_TCP_IO_BYTES_MAX + 4096;

/// Empty fragments accepted within one RPC record: they carry nothing, so only
/// a count stops a peer that sends nothing else.
pub const RPC_FRAGMENTS_EMPTY_MAX: u32 = 16;

/// How long an NFS connection may be without a call, in seconds. A client that
/// comes back after it connects again.
pub const NFS_CONNECTION_IDLE_SECONDS_MAX: u64 = 6 * 3600;

/// How long an NFS client may keep a call that it has begun to send, or take no
/// byte of the replies that lie ready for it, in seconds.
pub const NFS_CONNECTION_STALLED_SECONDS_MAX: u64 = 300;

/// The same while others wait because the door is full, in seconds.
pub const NFS_CONNECTION_PRESSED_SECONDS_MAX: u64 = 5;

/// A connection that has been without a call for so long gives way to a new one
/// when there are as many as may be, in seconds.
pub const NFS_CONNECTION_YIELDS_SECONDS_MIN: u64 = 10;

/// Bytes of one NFS connection's calls in progress and replies, beyond which it is not
/// read from; a call of 1 MiB may come on top. What a client has on its way to slow nodes,
/// or far ones, counts until they have answered: a gateway moves at most so much in that
/// time. The loop of io/net queues 20 MiB for sending.
pub const NFS_CONNECTION_BYTES_MAX: usize = 16 << 20;

/// Memory for calls and replies of all NFS clients together, unless configured, in
/// bytes.
pub const NFS_REQUEST_BYTES_MAX: usize = 512 << 20;

/// The least that can be configured, in bytes: some of the largest calls at a time.
pub const NFS_REQUEST_BYTES_MIN: usize = 16 << 20;

/// Longest head of an HTTP request, in bytes: request line, fields and the empty line.
pub const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;

/// Most field lines in the head of an HTTP request.
pub const HTTP_FIELDS_MAX: usize = 64;

/// Longest target of an HTTP request, in bytes: a path of the longest kind, in which every
/// second byte is percent-encoded.
pub const HTTP_TARGET_BYTES_MAX: usize = 8 << 10;

/// Longest size line of a chunk with its extensions, in bytes.
pub const HTTP_CHUNK_LINE_BYTES_MAX: usize = 256;

/// Extensions of all chunks of one HTTP request, in bytes: nobody reads them, so only a
/// count stops a peer that sends little else.
pub const HTTP_CHUNK_EXTENSION_BYTES_MAX: usize = 16 << 10;

/// Connections of HTTP clients.
pub const HTTP_CONNECTIONS_MAX: usize = 12_000;

/// Bytes of one HTTP connection that have arrived and are not served yet, before it is not
/// read from: some pipelined requests.
pub const HTTP_INBOX_BYTES_MAX: usize = 64 << 10;

/// Memory for contents of HTTP requests on their way to the volume, in bytes.
pub const HTTP_UPLOAD_BYTES_MAX: usize = 64 << 20;

/// Longest content of an HTTP request, unless configured, in bytes: what a file can hold.
pub const HTTP_BODY_BYTES_MAX: u64 = FILE_BYTES_MAX;

/// Clients of a door whose requests are counted, to bound their rate.
pub const PACED_CLIENTS_MAX: usize = 65_536;

/// Trailer section behind the chunks of an HTTP request, in bytes.
pub const HTTP_TRAILER_BYTES_MAX: usize = 4 << 10;

/// Longest request line of IBP with its LF, in bytes: LoCI's depot takes no longer one.
pub const IBP_REQUEST_BYTES_MAX: usize = 512;

/// Longest answer line of IBP with its LF, in bytes.
pub const IBP_ANSWER_BYTES_MAX: usize = 1024;

/// Longest status of an IBP depot, in bytes.
pub const IBP_STATUS_BYTES_MAX: usize = 64 << 10;

/// Most resources of an IBP depot.
pub const IBP_RESOURCES_MAX: usize = 1024;

/// Connections of one IBP depot, unless configured: each may hold a piece that is stored.
pub const IBP_CONNECTIONS_MAX: usize = 512;

/// Connections of all IBP depots of a process.
pub const IBP_PROCESS_CONNECTIONS_MAX: usize = 4096;

/// Allocations of one IBP depot: all of them are in memory.
pub const IBP_ALLOCATIONS_MAX: usize = 1 << 20;

/// What one IBP depot has read and its connections have not taken, in bytes.
pub const IBP_READ_BYTES_MAX: u64 = 64 << 20;

/// What has come to one IBP depot and is not stored yet, in bytes.
pub const IBP_STORE_BYTES_MAX: usize = 64 << 20;

/// The same of one connection, before it is not read from.
pub const IBP_STORE_WINDOW_BYTES: usize = 2 << 20;

/// Longest file name that is decoded, in bytes: long enough for the server to
/// see a name that it must refuse with NFS3ERR_NAMETOOLONG.
pub const NAME_DECODE_BYTES_MAX: usize = 4096;

/// Longest symbolic link text and MOUNT path that is decoded, in bytes.
pub const PATH_DECODE_BYTES_MAX: usize = 16 << 10;

/// Longest file name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest symbolic link text and longest MOUNT path, in bytes.
pub const PATH_BYTES_MAX: usize = 4095;

/// Supplementary groups in AUTH_SYS (RFC 5531, appendix A).
pub const AUTH_SYS_GROUPS_MAX: usize = 16;

/// Most hard links of a file, and most directories in a directory.
pub const LINKS_MAX: u32 = i32::MAX as u32;

/// Opaque attributes of an object, in bytes.
pub const OBJECT_ATTRIBUTES_BYTES_MAX: usize = 512;

/// Largest file, in bytes: 1,024 segments of 64 GiB.
pub const FILE_BYTES_MAX: u64 = 1 << 46;

/// Largest single object read or write between parts, in bytes.
pub const OBJECT_IO_BYTES_MAX: usize = 1 << 20;

/// Bytes of a file of which it is asked at a time whether they have space, or which become
/// holes: no more than one window of a block map, whatever its blocks, and 16 windows of runs
/// at a node.
pub const MAPPED_BYTES_MAX: u64 = 64 << 20;

/// Ranges with space that are told at a time.
pub const MAPPED_RUNS_MAX: usize = 1024;

/// Requests that a disk works on at a time, unless configured; more wait in its queue, where they
/// can be put in order and cancelled.
pub const DISK_DEPTH_MAX: usize = 32;

/// Requests that wait for one disk before reads for clients are refused.
pub const DISK_QUEUE_REQUESTS_MAX: usize = 1024;

/// Bytes that a node fetches for one sequential reader before he asks.
pub const READ_AHEAD_BYTES_MAX: u64 = 1 << 20;

/// What a node has fetched ahead for one reader at most, if a gateway says how far: what a
/// connection takes in the seconds of the delivery engine's term, on one disk.
pub const READ_AHEAD_TOLD_BYTES_MAX: u64 = 16 << 20;

/// Files that an NFS door sees read on, of all connections and of one: beyond, nodes read
/// ahead as they think right.
pub const NFS_READERS_MAX: usize = 4096;
/// See [`NFS_READERS_MAX`].
pub const NFS_READERS_PER_CONNECTION_MAX: usize = 64;

/// Readers whose places a node remembers, to know which of them read on.
pub const READ_STREAMS_MAX: usize = 4096;

/// Exports of a volume: every call looks through them, and all of them lie in
/// one record of the registry.
pub const EXPORTS_MAX: usize = 128;

/// Networks that one export lets in.
pub const EXPORT_NETWORKS_MAX: usize = 64;

/// Longest path of an export, in bytes.
pub const EXPORT_PATH_BYTES_MAX: usize = 1024;

/// Bearer tokens of the HTTP door: all of them lie in one record of the registry.
pub const WEB_TOKENS_MAX: usize = 256;

/// Longest name of one, in bytes.
pub const WEB_TOKEN_NAME_BYTES_MAX: usize = 64;

/// Longest path below which one holds, in bytes.
pub const WEB_TOKEN_PATH_BYTES_MAX: usize = 1024;

/// Connections at the HTTP door of a process's nodes.
pub const NODE_HTTP_CONNECTIONS_MAX: usize = 4096;

/// What that door holds for all of them: asked for, or not taken by the kernel, in bytes.
pub const NODE_HTTP_MEMORY_BYTES: u64 = 64 << 20;

/// How long a signed URL may hold, in seconds: it cannot be taken back.
pub const SIGNED_URL_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Locked ranges of one file, all owners together.
pub const LOCKS_PER_FILE_MAX: usize = 16_384;

/// Locked ranges and share reservations of one client.
pub const LOCKS_PER_CLIENT_MAX: usize = 65_536;

/// Locked ranges and share reservations of a site.
pub const LOCKS_MAX: usize = 1 << 20;

/// Clients with locks at a site.
pub const LOCK_CLIENTS_MAX: usize = 16_384;

/// Requests that wait for a lock of one file.
pub const LOCK_WAITERS_PER_FILE_MAX: usize = 1024;

/// Requests that wait for locks of a site.
pub const LOCK_WAITERS_MAX: usize = 16_384;

/// Longest name of a client and longest owner of a lock, in bytes: they are
/// kept as long as the lock.
pub const LOCK_NAME_BYTES_MAX: usize = 255;

/// Calls to clients (a grant, news of a restart) in progress at a door.
pub const LOCK_CALLS_MAX: usize = 16_384;
/// Trees with a quota at one site: all of them are listed at once.
pub const QUOTAS_MAX: usize = 4096;

/// Largest body of a message between hosts, in bytes: a list of all clients with locks.
pub const LINK_BODY_BYTES_MAX: usize = 8 << 20;

/// Largest body before two hosts know each other, in bytes.
pub const LINK_HELLO_BYTES_MAX: usize = 1024;

/// Longest reason of a refusal between hosts, in bytes.
pub const LINK_REASON_BYTES_MAX: usize = 512;

/// Calls that one host may have unanswered at another.
pub const LINK_CALLS_MAX: usize = 65_536;

/// Bytes of calls, and as many of replies, that a host takes before it has handed
/// them on. One message may exceed it.
pub const LINK_WINDOW_BYTES: usize = 16 << 20;

/// Bytes of calls, and as many of replies, that wait to be sent to one host. More
/// are answered with "busy".
pub const LINK_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes given to the socket of a host and not taken by the kernel yet, before
/// more wait where they can still be cancelled.
pub const LINK_UNSENT_BYTES_MAX: usize = 1 << 20;

/// Connections from hosts that have not said yet who they are.
pub const LINK_HANDSHAKES_MAX: usize = 256;

/// Hosts that are remembered.
pub const LINK_PEERS_MAX: usize = 16_384;

/// Names of gateways that an ensemble remembers, so that they can be revoked.
pub const GATEWAYS_MAX: usize = 1024;
/// Files of which a gateway remembers that it can prove how they were reached; half of
/// them since the other half was full. Of others a manager is asked again.
pub const GATEWAY_PROOFS_MAX: usize = 64 << 10;

/// Virtual addresses of an ensemble.
pub const VIRTUAL_ADDRESSES_MAX: usize = 256;

/// Clients at one virtual address of which the other gateways are told: the rest
/// finds out by itself that its gateway has gone.
pub const VIRTUAL_CLIENTS_MAX: usize = 4096;

/// Replies of fewer bytes of a file are sent by the gateway, unless a policy says otherwise:
/// to have a node send them costs its processor more (docs/performance.md, "Third-party transfer").
pub const INJECTED_NFS_BYTES_MIN: u64 = 256 << 10;

/// The same over UDP, where a reply is handed to its node as a whole.
pub const INJECTED_UDP_BYTES_MIN: u64 = 8 << 10;

/// The same over HTTP.
pub const INJECTED_HTTP_BYTES_MIN: u64 = 1 << 20;

/// Bytes of files that are read again and again, which a gateway keeps.
pub const GATEWAY_HOT_BYTES_MAX: usize = 128 << 20;

/// Longest file that it keeps, in bytes.
pub const GATEWAY_HOT_FILE_BYTES_MAX: u64 = 16 << 20;

/// Shorter pieces of a reply than this come through the gateway, whatever the policy says: a
/// pin, a message and a packet of its own for each are worth more than they are.
pub const INJECTED_PIECE_BYTES_MIN: u64 = 4 << 10;

/// Rules of the policy: all of them lie in one record of the registry.
pub const POLICY_RULES_MAX: usize = 256;

/// Pins that one message gives back at most.
pub const PINS_RELEASED_MAX: usize = 4096;

/// Files in a message in which a gateway tells what it keeps.
pub const KEPT_FILES_TOLD_MAX: usize = 512;

/// Memory for what is read ahead of its connections and not yet handed to their sockets,
/// unless configured, in bytes.
pub const DELIVERY_MEMORY_BYTES: u64 = 256 << 20;

/// The least delivery request of a stream whose rate nobody knows yet, in bytes; none of a known
/// one is cut smaller for want of memory.
pub const DELIVERY_REQUEST_BYTES_MIN: u64 = 64 << 10;

/// The largest delivery request, in bytes: what may be read of an object at once. On a
/// disk with an arm two streams of 500 kB/s are served with as much positioning as one
/// with requests of half the size.
pub const DELIVERY_REQUEST_BYTES_MAX: u64 = 1 << 20;

/// What need not be on time to the millisecond happens at multiples of this, in
/// milliseconds: a thread that serves many slow connections wakes once for all that are due.
pub const TIMER_TICK_MILLIS: u64 = 10;

/// The shortest time for which is read ahead, in milliseconds: some round trips to a disk.
pub const DELIVERY_BUFFERING_MILLIS_MIN: u64 = 50;

/// For how long is read ahead where disks could do with less, and memory affords it, in
/// milliseconds: each request costs the CPU the same, however short it is.
pub const DELIVERY_BUFFERING_MILLIS_WANTED: u64 = 1000;

/// The longest time for which is read ahead, in milliseconds: beyond it clients go away
/// more often than requests become cheaper.
pub const DELIVERY_BUFFERING_MILLIS_MAX: u64 = 20_000;

/// Decisions that are kept to be looked at, at most.
pub const DELIVERY_RECORDS_MAX: usize = 65_536;

/// As many are kept by a running gateway.
pub const DELIVERY_RECORDS_KEPT: usize = 1024;

/// Longest exNode document, in bytes: a million mappings with capabilities of the usual length.
pub const EXNODE_DOCUMENT_BYTES_MAX: u64 = 2 << 30;

/// Most mappings of an exNode.
pub const EXNODE_MAPPINGS_MAX: usize = 1_000_000;

/// Longest single piece of an exNode document (a tag, a text), in bytes.
pub const EXNODE_TOKEN_BYTES_MAX: usize = 64 << 10;

/// How deep elements of an exNode may lie in one another.
pub const EXNODE_DEPTH_MAX: usize = 32;

/// Most items of metadata, arguments and functions of an exNode and of each of its mappings.
pub const EXNODE_ITEMS_MAX: usize = 256;

/// Longest run of bytes that is coded as one, in bytes: a block, or what a compressed
/// mapping covers.
pub const EXNODE_BLOCK_BYTES_MAX: u64 = 64 << 20;

/// Most pieces of a file that are coded together, those that restore lost ones included.
pub const EXNODE_SHARDS_MAX: u32 = 256;

/// Sources of one extent that are kept, best first: an exNode whose mappings all overlap
/// would have as many as mappings.
pub const EXNODE_SOURCES_MAX: usize = 32;

/// Most depots that one answer of an L-Bone tells, and that one request asks about.
pub const LBONE_DEPOTS_MAX: u32 = 4096;

/// Longest request to an L-Bone, in bytes: a table of as many pairs as are answered.
pub const LBONE_REQUEST_BYTES_MAX: usize = 2 << 20;

/// Connections of an L-Bone at a time.
pub const LBONE_CONNECTIONS_MAX: usize = 64;

/// LUNs of an ensemble: all of them lie in one record of the registry.
pub const LUNS_MAX: usize = 256;

/// Longest name of a LUN, in bytes.
pub const LUN_NAME_BYTES_MAX: usize = 64;

/// Initiators that one LUN names.
pub const LUN_INITIATORS_MAX: usize = 64;

/// Initiators that are registered for reservations of one LUN.
pub const LUN_REGISTRANTS_MAX: usize = 128;

/// Longest name of an initiator or target, in bytes (RFC 7143 section 4.2.7.1).
pub const ISCSI_NAME_BYTES_MAX: usize = 223;

/// Connections of initiators.
pub const ISCSI_CONNECTIONS_MAX: usize = 1024;

/// Connections of one session.
pub const ISCSI_SESSION_CONNECTIONS_MAX: usize = 8;

/// Commands of one session that are in progress.
pub const ISCSI_COMMANDS_MAX: u32 = 128;

/// Bytes of one PDU's data that are taken.
pub const ISCSI_DATA_BYTES_MAX: usize = 256 << 10;

/// Bytes of one R2T or sequence of Data-In PDUs.
pub const ISCSI_BURST_BYTES_MAX: u32 = 1 << 20;

/// Bytes of one command's unsolicited data.
pub const ISCSI_FIRST_BURST_BYTES_MAX: u32 = 256 << 10;

/// Transfers of one command that an initiator is asked for at a time.
pub const ISCSI_TRANSFERS_MAX: u32 = 16;

/// Bytes that one command transfers (MAXIMUM TRANSFER LENGTH).
pub const ISCSI_TRANSFER_BYTES_MAX: u32 = 4 << 20;

/// Bytes that are compared, and exchanged for others, in one step. A divisor of the small-file
/// threshold, of the stripe unit and of every block of a block map: a range that is aligned to its own
/// length, a power of two, lies in one piece.
pub const EXCHANGE_BYTES_MAX: u32 = 64 << 10;

/// Bytes that a door has nodes copy with one request: some orders of [`OBJECT_IO_BYTES_MAX`], all at
/// once.
pub const COPY_BYTES_MAX: u64 = 4 << 20;

/// Bytes that a node reads elsewhere for copies at a time; beyond them it is busy.
pub const NODE_COPY_BYTES_MAX: u64 = 64 << 20;

/// Memory for what all commands transfer, in bytes.
pub const ISCSI_HELD_BYTES_MAX: usize = 256 << 20;
