//! Signed URLs of a file's columns at the nodes that have them: what they give, and whose
//! count no more.

use bytes::Bytes;
use crossdock_delivery::TcpSample;
use crossdock_host::{
    ColumnsError, ColumnsOrder, Host, HostInput, OBJECT_URL_SECONDS_MAX, SignError, SignedColumns,
};
use crossdock_members::Change;
use crossdock_nfs3::call::{StableHow, Write};
use crossdock_nfs3::{Call, HandleBuffer, Reply};
use crossdock_objects::{ConnId, ObjectDoorEffect, ObjectDoorInput};
use crossdock_types::Payload;

use super::Shape;
use super::network::Place;
use super::scoped::{SCOPED, SOON};
use super::stage::{CUT, SHAPE, Stage, WELL};

/// The head at its site, and parts of two columns and more.
const FILE_BYTES: usize = 700_000;

/// Of one WRITE.
const WRITE_BYTES: usize = 50_000;

fn content() -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at % 251).expect("a byte");
    (0..FILE_BYTES).map(byte).collect()
}

fn order(path: &str) -> ColumnsOrder {
    ColumnsOrder {
        path: path.parse().expect("a path"),
        offset_bytes: 0,
        length_bytes: None,
        seconds: OBJECT_URL_SECONDS_MAX,
        uid: 0,
        gid: 0,
        is_of_file: false,
    }
}

impl Stage {
    fn write(&mut self, file: &HandleBuffer, offset: usize, bytes: &[u8]) {
        let data = Payload::from(Bytes::copy_from_slice(bytes));
        let written = self.do_it(&Call::Write(Write {
            file: file.as_handle(),
            offset: offset as u64,
            count_bytes: u32::try_from(bytes.len()).expect("few bytes"),
            stable: StableHow::FileSync,
            data,
        }));
        assert!(matches!(written, Reply::Write(Ok(_))), "{written:?}");
    }

    /// A file with [`content`].
    fn fill(&mut self, name: &[u8]) -> HandleBuffer {
        let file = self.create(name);
        for (number, part) in content().chunks(WRITE_BYTES).enumerate() {
            self.write(&file, number * WRITE_BYTES, part);
        }
        file
    }

    fn sign_columns(
        &mut self,
        via: Place,
        order: ColumnsOrder,
    ) -> Result<SignedColumns, ColumnsError> {
        let sign = |host: &mut Host, now, wall| host.sign_columns(now, wall, order);
        self.world.order(via, sign)?;
        self.pass(SOON);
        let mut results = std::mem::take(&mut self.world.columns);
        assert_eq!(results.len(), 1, "one order, one answer");
        results.remove(0)
    }

    /// Something happens at the door of a node's process.
    fn tell_door(&mut self, node: Place, input: ObjectDoorInput) {
        let input = HostInput::Objects(input);
        let give = |host: &mut Host, now, wall| host.handle(now, wall, input);
        self.world.order(node, give);
        self.pass(SOON);
    }

    /// Status and content of the response to a GET at the process of a node.
    fn fetch(&mut self, node: Place, target: &str) -> (u16, Vec<u8>) {
        let id = ConnId(1 + self.world.objects.len() as u64);
        let request = format!("GET {target} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n");
        self.tell_door(node, ObjectDoorInput::Opened(id));
        self.tell_door(node, ObjectDoorInput::Received(id, request.into()));
        let mut response = Vec::new();
        let mut has_ended = false;
        let mut seen = 0;
        while let Some((place, effect)) = self.world.objects.get(seen) {
            seen += 1;
            match effect {
                ObjectDoorEffect::Send(to, pieces) if (*place, *to) == (node, id) => {
                    let bytes = pieces.concat();
                    response.extend_from_slice(&bytes);
                    self.tell_door(node, ObjectDoorInput::Sent(id, bytes.len()));
                }
                ObjectDoorEffect::Sample(to) if (*place, *to) == (node, id) => {
                    let sample = TcpSample {
                        acked_bytes: response.len() as u64,
                        delivery_rate: 100_000_000,
                        ..TcpSample::default()
                    };
                    self.tell_door(node, ObjectDoorInput::Sampled(id, sample));
                }
                ObjectDoorEffect::Close(to) => has_ended |= (*place, *to) == (node, id),
                _ => {}
            }
        }
        assert!(has_ended, "no whole response");
        let end = response.windows(4).position(|it| it == b"\r\n\r\n");
        let content = response.split_off(end.expect("a head") + 4);
        let head = String::from_utf8(response).expect("a head");
        (head[9..12].parse().expect("a status"), content)
    }
}

/// What is sent by nodes: node, offset in the file and target of each piece.
fn at_nodes(signed: &SignedColumns) -> Vec<(Place, usize, String)> {
    let pieces = signed.pieces.iter().filter_map(|piece| {
        let at = piece.at_node.as_ref()?;
        let offset = usize::try_from(piece.offset_bytes).expect("small");
        Some((at.number as Place, offset, at.target.clone()))
    });
    pieces.collect()
}

/// Goal: the pieces of a file follow each other without gaps; those of nodes, signed by
/// another gateway than the one that wrote it, are its bytes, and those that are
/// overwritten are gone while the others stay.
#[test]
fn nodes_send_the_pieces_of_a_file() {
    for has_maps in [false, true] {
        let shape = Shape { has_maps, ..SHAPE };
        let mut stage = Stage::new(shape, None);
        let file = stage.fill(b"file");
        let signed = stage.sign_columns(CUT, order("/file")).expect("signed");
        assert_eq!(signed.size_bytes, FILE_BYTES as u64);
        let mut end = 0;
        for piece in &signed.pieces {
            assert_eq!(piece.offset_bytes, end);
            end += piece.length_bytes;
        }
        assert_eq!(end, FILE_BYTES as u64);
        let first = &signed.pieces[0];
        assert_eq!((first.length_bytes, &first.at_node), (64 << 10, &None));
        let pieces = at_nodes(&signed);
        assert_eq!(pieces.len(), signed.pieces.len() - 1, "{pieces:?}");
        assert!(
            pieces.iter().any(|piece| piece.0 != pieces[0].0),
            "one node"
        );
        for (node, offset, target) in &pieces {
            let (status, bytes) = stage.fetch(*node, target);
            assert_eq!(status, 200);
            assert!(bytes[..] == content()[*offset..][..bytes.len()]);
            let other = (*node + 1) % 3;
            assert_eq!(stage.fetch(other, target).0, 403, "another node");
        }
        stage.write(&file, 100_000, b"other");
        let (node, _, target) = &pieces[0];
        assert_eq!(stage.fetch(*node, target).0, 410);
        let (node, _, target) = pieces.last().expect("a piece");
        assert_eq!(stage.fetch(*node, target).0, 200);
        let again = stage.sign_columns(CUT, order("/file")).expect("signed");
        let (node, offset, target) = &at_nodes(&again)[0];
        let (status, bytes) = stage.fetch(*node, target);
        assert_eq!(
            (status, &bytes[100_000 - offset..][..5]),
            (200, &b"other"[..])
        );
    }
}

/// Goal: a URL is worth as much as its gateway: nothing while that is revoked; and with its
/// process, or that of the manager which gave it the right, it ends for good.
#[test]
fn urls_end_with_whom_they_come_from() {
    let mut stage = Stage::new(SHAPE, None);
    stage.fill(b"file");
    let sign = |stage: &mut Stage, via| {
        let signed = stage.sign_columns(via, order("/file")).expect("signed");
        let (node, _, target) = at_nodes(&signed).remove(0);
        (node, target)
    };
    let (node, target) = sign(&mut stage, CUT);
    assert_eq!(stage.fetch(node, &target).0, 200);
    let name = || "gateway-0".to_owned();
    stage.propose(Change::RevokeGateway { name: name() });
    assert_eq!(stage.fetch(node, &target).0, 403);
    let refused = stage.sign_columns(CUT, order("/file"));
    assert_eq!(refused, Err(ColumnsError::Sign(SignError::Revoked)));
    stage.propose(Change::RestoreGateway { name: name() });
    assert_eq!(stage.fetch(node, &target).0, 200);

    stage.world.kill(CUT, SOON);
    stage.pass(10 * SOON);
    stage.connect_again(CUT);
    assert_eq!(stage.fetch(node, &target).0, 403, "another process");

    let (node, target) = sign(&mut stage, WELL);
    assert_eq!(stage.fetch(node, &target).0, 200);
    stage.restart_manager();
    assert_eq!(stage.fetch(node, &target).0, 403, "another manager");
    let (node, target) = sign(&mut stage, WELL);
    assert_eq!(stage.fetch(node, &target).0, 200);
}

/// Goal: who may not sign, or asks for what cannot be signed, is told why.
#[test]
fn what_cannot_be_signed_is_said() {
    let mut stage = Stage::new(SHAPE, None);
    stage.fill(b"file");
    let path = |text: &str| text.parse().expect("a path");
    for (wanted, error) in [
        (order("/none"), ColumnsError::NotFound(path("/none"))),
        (order("/file/x"), ColumnsError::NotFound(path("/file/x"))),
        (order("/"), ColumnsError::NotFile(path("/"))),
        (
            ColumnsOrder {
                seconds: OBJECT_URL_SECONDS_MAX + 1,
                ..order("/file")
            },
            ColumnsError::Seconds(OBJECT_URL_SECONDS_MAX + 1),
        ),
        (
            ColumnsOrder {
                uid: 1000,
                gid: 1000,
                ..order("/file")
            },
            ColumnsError::Denied(path("/file")),
        ),
    ] {
        assert_eq!(stage.sign_columns(WELL, wanted), Err(error));
    }
    for place in [0, 3] {
        let refused = stage.sign_columns(place, order("/file"));
        assert_eq!(refused, Err(ColumnsError::Sign(SignError::NoGateway)));
    }
    let part = ColumnsOrder {
        offset_bytes: 300_000,
        length_bytes: Some(10),
        ..order("/file")
    };
    let signed = stage.sign_columns(WELL, part).expect("signed");
    assert_eq!(signed.pieces.len(), 1);
    let (node, _, target) = at_nodes(&signed).remove(0);
    let (status, bytes) = stage.fetch(node, &target);
    assert_eq!((status, &bytes[..]), (200, &content()[300_000..300_010]));

    let mut stage = Stage::new(SCOPED, None);
    let refused = stage.sign_columns(WELL, order("/file"));
    assert_eq!(refused, Err(ColumnsError::Sign(SignError::Scoped)));
}
