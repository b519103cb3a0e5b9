//! The sockets of the nodes' HTTP door.

use crossdock_host::HostInput;
use crossdock_net::{Driver, Event};
use crossdock_objects::{ConnId, ObjectDoorEffect, ObjectDoorInput};

use super::Shell;
use super::clients::Heard;
use super::http::sample;

impl Shell {
    /// Something has happened at a connection to a node; the event again if it is somebody
    /// else's.
    pub(super) fn take_object_event(&mut self, event: Event) -> Option<Event> {
        match self
            .objects
            .take_event(&mut self.driver, &mut self.injector, event)
        {
            Ok(heard) => {
                self.tell_objects(heard);
                None
            }
            Err(event) => Some(event),
        }
    }

    /// Tells the nodes' HTTP door what the kernel has taken.
    pub(super) fn tell_objects_sent(&mut self) {
        let heard = self.objects.take_sent(&mut self.driver, &mut self.injector);
        self.tell_objects(heard);
    }

    fn tell_objects(&mut self, heard: Vec<Heard>) {
        for heard in heard {
            self.give(HostInput::Objects(match heard {
                Heard::Opened(number, _) => ObjectDoorInput::Opened(ConnId(number)),
                Heard::Received(number, bytes) => ObjectDoorInput::Received(ConnId(number), bytes),
                Heard::Sent(number, bytes) => ObjectDoorInput::Sent(ConnId(number), bytes),
                Heard::PeerDone(number) => ObjectDoorInput::PeerDone(ConnId(number)),
                Heard::Closed(number) => ObjectDoorInput::Closed(ConnId(number)),
            }));
        }
    }

    pub(super) fn take_object_effect(&mut self, effect: ObjectDoorEffect) {
        let (clients, driver) = (&mut self.objects, &mut self.driver);
        let injector = &mut self.injector;
        match effect {
            ObjectDoorEffect::Send(name, pieces) => {
                let payload = pieces.into_iter().collect();
                let heard = clients.send(driver, injector, name.0, payload);
                self.tell_objects(heard);
            }
            ObjectDoorEffect::Close(name) => {
                let heard = clients.close(driver, injector, name.0);
                self.tell_objects(heard);
            }
            ObjectDoorEffect::Abort(name) => clients.on(driver, name.0, Driver::abort),
            ObjectDoorEffect::Pause(name) => clients.on(driver, name.0, Driver::pause_receive),
            ObjectDoorEffect::Resume(name) => clients.on(driver, name.0, Driver::resume_receive),
            ObjectDoorEffect::Sample(name) => {
                if let Some(info) = clients.tcp_info(driver, name.0) {
                    let sampled = ObjectDoorInput::Sampled(name, sample(&info));
                    self.give(HostInput::Objects(sampled));
                }
            }
            // The host has passed them to its nodes.
            ObjectDoorEffect::Node(..)
            | ObjectDoorEffect::Cancel(..)
            | ObjectDoorEffect::Postpone(..)
            | ObjectDoorEffect::Hurry(..) => {}
        }
    }
}
