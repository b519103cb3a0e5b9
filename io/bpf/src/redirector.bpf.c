// Catches packets with bytes of extents on their way out (SPIRAL section 2,
// docs/decisions/0034). It stands on the way out of a device that only marked sockets are
// routed to; the device itself sends nothing, so what this program does not forward is
// not sent at all.
//
// Compiled by `cargo xtask gen bpf` to redirector.bpf.o.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*skb_store)(void *skb, __u32 at, const void *from, __u32 length, __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*skb_load)(const void *skb, __u32 at, void *to, __u32 length) = (void *)BPF_FUNC_skb_load_bytes;
static struct bpf_sock *(*sk_fullsock)(struct bpf_sock *sk) = (void *)BPF_FUNC_sk_fullsock;
static struct bpf_tcp_sock *(*tcp_sock)(struct bpf_sock *sk) = (void *)BPF_FUNC_tcp_sock;
static void *(*sk_storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)BPF_FUNC_sk_storage_get;
static void *(*ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*ringbuf_submit)(void *data, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static void (*ringbuf_discard)(void *data, __u64 flags) = (void *)BPF_FUNC_ringbuf_discard;
static long (*clone_redirect)(void *skb, __u32 ifindex, __u64 flags) = (void *)BPF_FUNC_clone_redirect;
static long (*redirect_neigh)(__u32 ifindex, void *params, int length, __u64 flags) = (void *)BPF_FUNC_redirect_neigh;

#define ETHERNET_BYTES 14
#define IPV4_PROTOCOL_AT 9
#define IPV6_BYTES 40
#define IPV6_PROTOCOL_AT 6
#define TCP 6
#define TCP_BYTES_MIN 20
#define TCP_SEQUENCE_AT 4
#define TCP_FLAGS_AT 13
#define TCP_RESET 4
#define HEADERS_BYTES_MAX 120
#define SLOTS 65536
#define MARK 0xcd06
#define NEVER (~0ULL)
#define EVENTS_BYTES (4 << 20)

// What the gateway says of a socket. Its side: io/bpf/src/slots.rs.
struct slot {
    // Which connection has the slot; a socket that names another one has lost it.
    __u64 connection;
    // From which offset of the stream on packets are caught; all ones: none.
    __u64 caught_from;
};

// What the gateway is told of a caught packet. Its side: wire/tunnel/src/caught.rs.
struct caught {
    __u64 connection;
    __u64 offset;
    __u64 acknowledged;
    __u32 payload_bytes;
    __u16 segment_bytes;
    __u8 headers_bytes;
    __u8 unused;
    __u8 headers[HEADERS_BYTES_MAX];
};

// Of a socket: its connection, the lowest 16 bits of which are the number of its slot.
struct {
    UINT(type, BPF_MAP_TYPE_SK_STORAGE);
    UINT(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, __s32);
    TYPE(value, __u64);
} connections SECTION(".maps");

struct {
    UINT(type, BPF_MAP_TYPE_ARRAY);
    UINT(map_flags, BPF_F_MMAPABLE);
    UINT(max_entries, SLOTS);
    TYPE(key, __u32);
    TYPE(value, struct slot);
} slots SECTION(".maps");

struct {
    UINT(type, BPF_MAP_TYPE_RINGBUF);
    UINT(max_entries, EVENTS_BYTES);
} events SECTION(".maps");

// 0: whether the gateway looks after events by itself before it sleeps. Its side: io/bpf/src/slots.rs.
struct {
    UINT(type, BPF_MAP_TYPE_ARRAY);
    UINT(map_flags, BPF_F_MMAPABLE);
    UINT(max_entries, 1);
    TYPE(key, __u32);
    TYPE(value, __u64);
} awake SECTION(".maps");

// 0: the number of the device that packets leave by.
struct {
    UINT(type, BPF_MAP_TYPE_ARRAY);
    UINT(max_entries, 1);
    TYPE(key, __u32);
    TYPE(value, __u32);
} way_out SECTION(".maps");

// What became of packets. Its side: io/bpf/src/catcher.rs.
enum figure { PASSED, CAUGHT, LATE, UNKNOWN, FULL, STRAY, FIGURES };

struct {
    UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    UINT(max_entries, FIGURES);
    TYPE(key, __u32);
    TYPE(value, __u64);
} figures SECTION(".maps");

static __always_inline void count(__u32 figure) {
    __u64 *value = map_lookup(&figures, &figure);
    if (value)
        *value += 1;
}

// Sends the packet on its way. Without a way it is lost with the device.
static __always_inline int pass(struct __sk_buff *skb) {
    __u32 first = 0;
    __u32 *device = map_lookup(&way_out, &first);
    if (!device || !*device)
        return TC_ACT_STOLEN;
    count(PASSED);
    // Else the route would be looked for by the rule that led here; and see the guard below.
    skb->mark = 0;
    return redirect_neigh(*device, 0, 0, 0);
}

// TCP takes it for sent, and repeats it. (Told that it was dropped, TCP would stall.)
static __always_inline int take(__u32 why) {
    count(why);
    return TC_ACT_STOLEN;
}

// A reset counts at the client's next byte only (RFC 5961 section 3.2). TCP names what is behind all
// that it has sent, of which caught packets may be lost; a client that misses them asks back, but not
// often. So there are two: that one, and one that names the first byte which is not acknowledged. The
// first is a copy, which comes by here again, and has no socket.
// The checksum is made behind here (CHECKSUM_PARTIAL), as of everything that TCP sends.
static __always_inline void aim_reset(struct __sk_buff *skb, __u32 ip_bytes) {
    struct bpf_sock *socket = skb->sk;
    if (!socket)
        return;
    socket = sk_fullsock(socket);
    if (!socket)
        return;
    struct bpf_tcp_sock *tcp = tcp_sock(socket);
    if (!tcp)
        return;
    __be32 sequence = __builtin_bswap32(tcp->snd_una);
    clone_redirect(skb, skb->ifindex, 0);
    skb_store(skb, ETHERNET_BYTES + ip_bytes + TCP_SEQUENCE_AT, &sequence, sizeof sequence, 0);
}

SECTION("classifier") int redirector(struct __sk_buff *skb) {
    __u8 version, protocol;
    if (skb_load(skb, ETHERNET_BYTES, &version, 1) < 0)
        return take(UNKNOWN);
    __u32 is_ipv4 = version >> 4 == 4;
    __u32 ip_bytes = is_ipv4 ? (version & 15) * 4 : IPV6_BYTES;
    __u32 protocol_at = is_ipv4 ? IPV4_PROTOCOL_AT : IPV6_PROTOCOL_AT;
    __u8 tcp_header[TCP_BYTES_MIN];
    if (skb_load(skb, ETHERNET_BYTES + protocol_at, &protocol, 1) < 0 || protocol != TCP ||
        skb_load(skb, ETHERNET_BYTES + ip_bytes, tcp_header, sizeof tcp_header) < 0)
        return take(UNKNOWN);
    __u32 headers_bytes = ip_bytes + (tcp_header[12] >> 4) * 4;
    if (skb->len < ETHERNET_BYTES + headers_bytes)
        return take(UNKNOWN);
    __u32 payload_bytes = skb->len - ETHERNET_BYTES - headers_bytes;
    // Acknowledgements and the end of a stream have nothing that could be wrong.
    if (payload_bytes == 0) {
        if (tcp_header[TCP_FLAGS_AT] & TCP_RESET)
            aim_reset(skb, ip_bytes);
        return pass(skb);
    }

    // What has a payload and a mark but no connection is of a gateway that is gone: who knows
    // whether its bytes are any.
    struct bpf_sock *socket = skb->sk;
    if (!socket)
        return take(UNKNOWN);
    socket = sk_fullsock(socket);
    if (!socket)
        return take(UNKNOWN);
    __u64 *own = sk_storage_get(&connections, socket, 0, 0);
    if (!own)
        return take(UNKNOWN);
    __u64 connection = *own;
    __u32 number = connection & (SLOTS - 1);
    struct slot *slot = map_lookup(&slots, &number);
    struct bpf_tcp_sock *tcp = tcp_sock(socket);
    if (!slot || !tcp || *(volatile __u64 *)&slot->connection != connection)
        return take(UNKNOWN);

    __u32 sequence = (__u32)tcp_header[4] << 24 | (__u32)tcp_header[5] << 16 |
                        (__u32)tcp_header[6] << 8 | tcp_header[7];
    __u64 acknowledged = tcp->bytes_acked;
    __u64 offset = acknowledged + (__s64)(__s32)(sequence - tcp->snd_una);
    __u64 caught_from = *(volatile __u64 *)&slot->caught_from;
    // The beginning of what is repeated can lie before that of the stream by no more than a probe's byte.
    __s64 end = (__s64)(offset + payload_bytes);
    if (end <= (__s64)acknowledged)
        return take(LATE);
    if (caught_from == NEVER || (__u64)end <= caught_from)
        return pass(skb);

    struct caught *event = ringbuf_reserve(&events, sizeof *event, 0);
    if (!event)
        return take(FULL);
    // The compiler would forget that the length is bounded, and the verifier want to know.
    __asm__ volatile("" : "+r"(headers_bytes));
    if (headers_bytes == 0 || headers_bytes > HEADERS_BYTES_MAX ||
        skb_load(skb, ETHERNET_BYTES, event->headers, headers_bytes) < 0) {
        ringbuf_discard(event, 0);
        return take(UNKNOWN);
    }
    event->connection = connection;
    event->offset = offset;
    event->acknowledged = acknowledged;
    event->payload_bytes = payload_bytes;
    event->segment_bytes = skb->gso_size;
    event->headers_bytes = headers_bytes;
    event->unused = 0;
    // To wake somebody is an interrupt to itself, which a virtual machine traps.
    __u32 first = 0;
    __u64 *is_awake = map_lookup(&awake, &first);
    ringbuf_submit(event, is_awake && *(volatile __u64 *)is_awake ? BPF_RB_NO_WAKEUP : 0);
    return take(CAUGHT);
}

// On the way out itself: what has the mark should have gone to the device first, but somebody has
// taken the rule away that had it go there. Nobody knows whether its bytes are any.
SECTION("classifier") int redirector_guard(struct __sk_buff *skb) {
    return skb->mark == MARK ? take(STRAY) : TC_ACT_UNSPEC;
}

char _license[] SECTION("license") = "Apache-2.0";
