//! The login phase (RFC 7143 section 6.3): who the initiator is, whether it may, what both
//! sides agree on; then the connection is one of a session's.

use std::collections::BTreeSet;

use bytes::Bytes;
use crossdock_checksum::{equal_in_constant_time, keyed_hash};
use crossdock_iscsi_pdu::{
    Head, LoginFlags, LoginRequest, LoginResponse, Pdu, Request, Stage, TEXT_BYTES_MAX,
    encode_binary, encode_text, opcode, parse_binary, parse_number, parse_text,
};
use crossdock_limits::{ISCSI_DATA_BYTES_MAX, ISCSI_NAME_BYTES_MAX};
use crossdock_peer::{InitiatorRule, Nexus, TARGET_PREFIX};
use crossdock_types::{Payload, Time};

use crate::chap::{Algorithm, BINARY_BYTES_MAX, CHALLENGE_BYTES};
use crate::connection::{Connection, Phase};
use crate::door::IscsiDoor;
use crate::message::ConnId;
use crate::negotiate::Parameters;
use crate::session::{Session, SessionId};

/// Login requests of one connection: a login that needs more goes round in circles.
const REQUESTS_MAX: u32 = 64;

/// A login in progress.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) since: Time,
    requests: u32,
    first: Option<LoginRequest>,
    stage: Stage,
    /// Of a text that goes on.
    text: Vec<u8>,
    /// Keys that were negotiated: each is, once.
    seen: BTreeSet<String>,
    who: Option<Who>,
    proof: Proof,
    parameters: Parameters,
    is_declared: bool,
}

/// Who it is, and what it wants.
#[derive(Clone, Debug)]
struct Who {
    initiator: String,
    /// The LUN's number; without one it is a discovery session.
    unit: Option<u64>,
    rule: InitiatorRule,
}

/// How far the initiator has proved that it is who it says.
#[derive(Debug)]
enum Proof {
    Nothing,
    /// CHAP is what both take.
    Agreed,
    /// It was given a challenge.
    Challenged(Algorithm, Challenge),
    Done,
}

#[derive(Debug)]
struct Challenge {
    id: u8,
    bytes: [u8; CHALLENGE_BYTES],
}

/// Why a login fails: class and detail of its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal(u8, u8);

impl Refusal {
    const INITIATOR: Self = Self(2, 0);
    const AUTHENTICATION: Self = Self(2, 1);
    const AUTHORISATION: Self = Self(2, 2);
    const NOT_FOUND: Self = Self(2, 3);
    const VERSION: Self = Self(2, 5);
    const CONNECTIONS: Self = Self(2, 6);
    const MISSING: Self = Self(2, 7);
    const SESSION_TYPE: Self = Self(2, 9);
    const NO_SESSION: Self = Self(2, 10);
    const INVALID: Self = Self(2, 11);
    const UNAVAILABLE: Self = Self(3, 1);
    const RESOURCES: Self = Self(3, 2);
}

type Pairs = Vec<(String, String)>;

impl Login {
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            since: now,
            requests: 0,
            first: None,
            stage: Stage::Security,
            text: Vec::new(),
            seen: BTreeSet::new(),
            who: None,
            proof: Proof::Nothing,
            parameters: Parameters::DEFAULT,
            is_declared: false,
        }
    }

    /// What has to be the same in all requests, and what one may ask for.
    fn check(&mut self, request: &LoginRequest) -> Result<LoginFlags, Refusal> {
        self.requests += 1;
        let flags = LoginFlags::decode(request.head.flags).ok_or(Refusal::INITIATOR)?;
        let first = *self.first.get_or_insert(*request);
        let is_same = first.isid == request.isid
            && first.tsih == request.tsih
            && first.cid == request.cid
            && first.task_tag == request.task_tag;
        if !is_same || self.requests > REQUESTS_MAX {
            return Err(Refusal::INITIATOR);
        }
        let [_, lowest_version] = request.head.specific;
        if lowest_version > 0 {
            return Err(Refusal::VERSION);
        }
        let is_forward = !flags.is_transit || flags.next as u8 > flags.current as u8;
        let is_here = match (self.requests, flags.current) {
            (_, Stage::FullFeature) => false,
            (1, stage) => {
                self.stage = stage;
                true
            }
            (_, stage) => stage == self.stage,
        };
        match is_forward && is_here {
            true => Ok(flags),
            false => Err(Refusal::INVALID),
        }
    }

    /// The text of a request, once all of it is there.
    fn gather(&mut self, flags: LoginFlags, data: &Payload) -> Result<Option<Pairs>, Refusal> {
        if self.text.len() + data.len() > TEXT_BYTES_MAX {
            return Err(Refusal::INITIATOR);
        }
        self.text.extend_from_slice(&data.to_bytes());
        if flags.is_continued {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        parse_text(&text).map(Some).map_err(|_| Refusal::INITIATOR)
    }

    /// Keys that are known once.
    fn take_pairs(
        &mut self,
        pairs: &Pairs,
        connections_max: usize,
    ) -> Result<(Pairs, Pairs), Refusal> {
        let (mut proofs, mut answers) = (Pairs::new(), Pairs::new());
        for (key, value) in pairs {
            if !self.seen.insert(key.clone()) {
                return Err(Refusal::INITIATOR);
            }
            if key == "AuthMethod" || key.starts_with("CHAP_") {
                proofs.push((key.clone(), value.clone()));
                continue;
            }
            if let Some(answer) = self.parameters.take(key, value, connections_max) {
                answers.push((key.clone(), answer));
            }
        }
        Ok((proofs, answers))
    }

    /// Whether the initiator has shown what it has to.
    fn is_proved(&self) -> bool {
        let needs_proof = self.who.as_ref().is_some_and(|who| who.rule.chap.is_some());
        !needs_proof || matches!(self.proof, Proof::Done)
    }
}

impl IscsiDoor {
    /// Serves a PDU of a connection that is not one of a session's yet.
    pub(crate) fn serve_login(&mut self, now: Time, id: ConnId, pdu: &Pdu) {
        let Some(Request::Login(request)) = Request::decode(&pdu.header) else {
            // Nothing else may come, and nothing can be answered.
            self.figures.rejected_total += 1;
            return self.drop_connection(now, id);
        };
        match self.step_login(now, id, &request, &pdu.data) {
            Ok(()) => {}
            Err(refusal) => {
                self.figures.refused_logins_total += 1;
                self.answer_login(
                    id,
                    &request,
                    request.head.flags & 0x0c,
                    refusal,
                    Bytes::new(),
                );
                self.shut(id);
            }
        }
    }

    fn step_login(
        &mut self,
        now: Time,
        id: ConnId,
        request: &LoginRequest,
        data: &Payload,
    ) -> Result<(), Refusal> {
        let connections_max = self.config.limits.session_connections_max;
        let login = self.login(id).ok_or(Refusal::INVALID)?;
        let flags = login.check(request)?;
        let well = Refusal(0, 0);
        let Some(pairs) = login.gather(flags, data)? else {
            let flags = LoginFlags {
                is_transit: false,
                is_continued: false,
                ..flags
            };
            self.answer_login(id, request, flags.encode(), well, Bytes::new());
            return Ok(());
        };
        let (proofs, mut answers) = login.take_pairs(&pairs, connections_max)?;
        let is_first = login.who.is_none();
        if is_first {
            // A gateway that has no number yet is not one of the ensemble's.
            let port = self.port_of(id);
            let port = port.filter(|port| *port > 0).ok_or(Refusal::UNAVAILABLE)?;
            let who = self.identify(id, &pairs)?;
            let is_target_named = pairs.iter().any(|(key, _)| key == "TargetName");
            if is_target_named && request.tsih.get() == 0 {
                answers.push(("TargetPortalGroupTag".to_owned(), port.to_string()));
            }
            if let Some(login) = self.login(id) {
                login.who = Some(who);
            }
        }
        answers.extend(self.prove(id, flags.current, &proofs)?);
        let login = self.login(id).ok_or(Refusal::INVALID)?;
        let is_proved = login.is_proved();
        if !is_proved && flags.current != Stage::Security {
            return Err(Refusal::AUTHENTICATION);
        }
        let is_transit = flags.is_transit && is_proved;
        if is_transit {
            login.stage = flags.next;
        }
        if flags.current == Stage::Operational && !std::mem::replace(&mut login.is_declared, true) {
            answers.push(Parameters::declaration());
        }
        let is_complete = is_transit && flags.next == Stage::FullFeature;
        if is_complete && !login.parameters.is_consistent() {
            return Err(Refusal::INITIATOR);
        }
        let mut flags = LoginFlags {
            is_transit,
            ..flags
        };
        flags.is_continued = false;
        let text = encode_text(answers.iter().map(|(key, value)| (&key[..], &value[..])));
        if is_complete {
            self.join(now, id, request)?;
        }
        self.answer_login(id, request, flags.encode(), well, text);
        if is_complete {
            self.begin_full_feature(id);
        }
        Ok(())
    }

    /// Who it is, by the first request.
    fn identify(&self, id: ConnId, pairs: &Pairs) -> Result<Who, Refusal> {
        let value = |name: &str| {
            let mut pairs = pairs.iter();
            let found = pairs.find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let initiator = value("InitiatorName").ok_or(Refusal::MISSING)?;
        let is_name = |byte: u8| byte.is_ascii_graphic();
        if initiator.is_empty()
            || initiator.len() > ISCSI_NAME_BYTES_MAX
            || !initiator.bytes().all(is_name)
        {
            return Err(Refusal::INITIATOR);
        }
        let is_discovery = match value("SessionType") {
            Some("Discovery") => true,
            Some("Normal") | None => false,
            Some(_) => return Err(Refusal::SESSION_TYPE),
        };
        let from = self.connections.get(&id).map(Connection::from);
        let from = from.ok_or(Refusal::INVALID)?;
        if is_discovery {
            return Ok(Who {
                initiator: initiator.to_owned(),
                unit: None,
                rule: InitiatorRule::open(initiator),
            });
        }
        let target = value("TargetName").ok_or(Refusal::MISSING)?;
        let name = target
            .strip_prefix(TARGET_PREFIX)
            .ok_or(Refusal::NOT_FOUND)?;
        let mut luns = self.luns.values();
        let lun = luns
            .find(|lun| lun.name == name)
            .ok_or(Refusal::NOT_FOUND)?;
        let rule = lun.access.rule(initiator, from);
        Ok(Who {
            initiator: initiator.to_owned(),
            unit: Some(lun.id),
            rule: rule.ok_or(Refusal::AUTHORISATION)?,
        })
    }

    /// Takes the keys of authentication.
    fn prove(&mut self, id: ConnId, stage: Stage, pairs: &Pairs) -> Result<Pairs, Refusal> {
        if pairs.is_empty() {
            return Ok(Pairs::new());
        }
        if stage != Stage::Security {
            return Err(Refusal::INITIATOR);
        }
        let challenge = self.new_challenge();
        let login = self.login(id).ok_or(Refusal::INVALID)?;
        let who = login.who.clone().ok_or(Refusal::INVALID)?;
        let value = |name: &str| {
            let mut pairs = pairs.iter();
            let found = pairs.find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let pair = |key: &str, value: String| (key.to_owned(), value);
        if let Some(methods) = value("AuthMethod") {
            let wanted = if who.rule.chap.is_some() {
                "CHAP"
            } else {
                "None"
            };
            if !methods.split(',').any(|method| method == wanted) {
                return Err(Refusal::AUTHENTICATION);
            }
            login.proof = match who.rule.chap {
                Some(_) => Proof::Agreed,
                None => Proof::Done,
            };
            return Ok(vec![pair("AuthMethod", wanted.to_owned())]);
        }
        match std::mem::replace(&mut login.proof, Proof::Nothing) {
            Proof::Agreed => {
                let list = value("CHAP_A").ok_or(Refusal::INITIATOR)?;
                let algorithm = Algorithm::choose(list).ok_or(Refusal::AUTHENTICATION)?;
                let told = vec![
                    pair("CHAP_A", algorithm.number().to_owned()),
                    pair("CHAP_I", challenge.id.to_string()),
                    pair("CHAP_C", encode_binary(&challenge.bytes)),
                ];
                login.proof = Proof::Challenged(algorithm, challenge);
                Ok(told)
            }
            Proof::Challenged(algorithm, challenge) => {
                let answers = check_response(&who.rule, algorithm, &challenge, value)?;
                login.proof = Proof::Done;
                Ok(answers)
            }
            Proof::Nothing | Proof::Done => Err(Refusal::INITIATOR),
        }
    }

    /// A challenge that nobody can foresee, and that was never given before.
    fn new_challenge(&mut self) -> Challenge {
        self.challenges_total += 1;
        let bytes = keyed_hash(&self.config.seed, &self.challenges_total.to_be_bytes());
        let id = self.challenges_total.to_be_bytes()[7];
        Challenge { id, bytes }
    }

    /// All is agreed on: the connection becomes one of a session's, a new one's or another's.
    fn join(&mut self, now: Time, id: ConnId, request: &LoginRequest) -> Result<(), Refusal> {
        let login = self.login(id).ok_or(Refusal::INVALID)?;
        let who = login.who.clone().ok_or(Refusal::INVALID)?;
        let parameters = login.parameters;
        let nexus = Nexus {
            initiator: who.initiator,
            isid: request.isid,
            port: self.port_of(id).ok_or(Refusal::INVALID)?,
        };
        if self.is_stopping {
            return Err(Refusal::UNAVAILABLE);
        }
        let cid = request.cid.get();
        let session = match request.tsih.get() {
            0 => {
                // The same initiator has begun anew (RFC 7143 section 6.3.5).
                let sessions = self.sessions.iter();
                let is_same =
                    |session: &Session| session.nexus == nexus && session.unit == who.unit;
                let old = sessions.filter(|(_, session)| is_same(session));
                let old: Vec<SessionId> = old.map(|(&id, _)| id).collect();
                for old in old {
                    self.end_session(now, old);
                }
                let number = self.free_session().ok_or(Refusal::RESOURCES)?;
                let cmd_sn = request.cmd_sn.get();
                let session = Session::new(nexus, who.unit, who.rule, parameters, cmd_sn);
                self.sessions.insert(number, session);
                number
            }
            tsih => {
                let number = SessionId(tsih);
                let known = self.sessions.get(&number).ok_or(Refusal::NO_SESSION)?;
                if known.nexus != nexus || known.unit != who.unit || known.unit.is_none() {
                    return Err(Refusal::NO_SESSION);
                }
                if let Some(&old) = known.connections.get(&cid) {
                    // It has lost the connection before we noticed; the session goes on.
                    self.leave_session(now, old, true);
                    self.drop_connection(now, old);
                } else if known.connections.len() as u64 >= known.parameters.connections_max {
                    return Err(Refusal::CONNECTIONS);
                }
                number
            }
        };
        let Some(joined) = self.sessions.get_mut(&session) else {
            return Err(Refusal::NO_SESSION);
        };
        joined.connections.insert(cid, id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.phase = Phase::Full(session, cid);
            connection.active = now;
            connection.their_data_bytes_max = parameters.their_data_bytes_max;
            let digests = parameters.digests;
            connection.reader.agree(digests, ISCSI_DATA_BYTES_MAX);
        }
        Ok(())
    }

    /// From now on PDUs have the digests that were agreed on: behind the last login response.
    fn begin_full_feature(&mut self, id: ConnId) {
        let session = self.session_of(id);
        let digests = session.map(|session| session.parameters.digests);
        if let (Some(digests), Some(connection)) = (digests, self.connections.get_mut(&id)) {
            connection.digests = digests;
        }
    }

    fn free_session(&mut self) -> Option<SessionId> {
        if self.sessions.len() >= self.config.limits.connections_max {
            return None;
        }
        loop {
            self.sessions_total = self.sessions_total.wrapping_add(1).max(1);
            let number = SessionId(self.sessions_total);
            if !self.sessions.contains_key(&number) {
                return Some(number);
            }
        }
    }

    fn answer_login(
        &mut self,
        id: ConnId,
        request: &LoginRequest,
        flags: u8,
        Refusal(class, detail): Refusal,
        text: Bytes,
    ) {
        let commands_max = self.config.limits.commands_max;
        let numbers = self.session_of(id).map(|session| {
            let exp_cmd_sn = session.exp_cmd_sn;
            (exp_cmd_sn, session.max_cmd_sn(commands_max))
        });
        let first = request.cmd_sn.get();
        let (exp_cmd_sn, max_cmd_sn) = numbers.unwrap_or((first, first));
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        // Version 0 is all there is.
        let response = LoginResponse {
            head: Head::new(opcode::LOGIN_RESPONSE, flags),
            isid: request.isid,
            tsih: connection
                .session()
                .map_or(request.tsih, |session| session.0.into()),
            task_tag: request.task_tag,
            stat_sn: connection.stat_sn.into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            status_class: class,
            status_detail: detail,
            ..LoginResponse::default()
        };
        connection.stat_sn = connection.stat_sn.wrapping_add(1);
        self.push(id, &response, Payload::from(text));
    }

    fn login(&mut self, id: ConnId) -> Option<&mut Login> {
        match &mut self.connections.get_mut(&id)?.phase {
            Phase::Login(login) => Some(login),
            Phase::Full(..) => None,
        }
    }
}

/// What the initiator answers to the challenge, and what it asks in turn.
fn check_response<'a>(
    rule: &InitiatorRule,
    algorithm: Algorithm,
    challenge: &Challenge,
    value: impl Fn(&str) -> Option<&'a str>,
) -> Result<Pairs, Refusal> {
    let known = rule.chap.as_ref().ok_or(Refusal::AUTHENTICATION)?;
    let user = value("CHAP_N").ok_or(Refusal::INITIATOR)?;
    let response = value("CHAP_R").ok_or(Refusal::INITIATOR)?;
    let response = parse_binary(response, BINARY_BYTES_MAX).ok_or(Refusal::INITIATOR)?;
    let expected = algorithm.response(challenge.id, &known.secret.0, &challenge.bytes);
    // Both are looked at whatever the other one is.
    let is_user = equal_in_constant_time(user.as_bytes(), known.user.as_bytes());
    let is_response = equal_in_constant_time(&response, &expected);
    if !(is_user & is_response) {
        return Err(Refusal::AUTHENTICATION);
    }
    let (Some(id), Some(theirs)) = (value("CHAP_I"), value("CHAP_C")) else {
        return Ok(Pairs::new());
    };
    let id = parse_number(id).and_then(|id| u8::try_from(id).ok());
    let id = id.ok_or(Refusal::INITIATOR)?;
    let theirs = parse_binary(theirs, BINARY_BYTES_MAX).ok_or(Refusal::INITIATOR)?;
    let ours = rule.mutual.as_ref().ok_or(Refusal::AUTHENTICATION)?;
    // Who gives our own challenge back wants us to answer it (RFC 7143 section 12.1.3).
    if theirs == challenge.bytes {
        return Err(Refusal::AUTHENTICATION);
    }
    let proof = algorithm.response(id, &ours.secret.0, &theirs);
    Ok(vec![
        ("CHAP_N".to_owned(), ours.user.clone()),
        ("CHAP_R".to_owned(), encode_binary(&proof)),
    ])
}
