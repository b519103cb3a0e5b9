//! The iSCSI door's sockets.

use crossdock_host::HostInput;
use crossdock_iscsi::{ConnId, IscsiEffect, IscsiInput};
use crossdock_net::{Driver, Event};

use super::Shell;
use super::clients::Heard;

impl Shell {
    /// Something has happened at an initiator's connection; the event again if it is somebody
    /// else's.
    pub(super) fn take_iscsi_event(&mut self, event: Event) -> Option<Event> {
        match self
            .initiators
            .take_event(&mut self.driver, &mut self.injector, event)
        {
            Ok(heard) => {
                self.tell_iscsi(heard);
                None
            }
            Err(event) => Some(event),
        }
    }

    /// Tells the iSCSI door what the kernel has taken.
    pub(super) fn tell_iscsi_sent(&mut self) {
        let heard = self
            .initiators
            .take_sent(&mut self.driver, &mut self.injector);
        self.tell_iscsi(heard);
    }

    fn tell_iscsi(&mut self, heard: Vec<Heard>) {
        for heard in heard {
            self.give(HostInput::Iscsi(match heard {
                Heard::Opened(number, peer) => {
                    let local = self.initiators.local_address(&self.driver, number);
                    IscsiInput::Opened(ConnId(number), peer, local)
                }
                Heard::Received(number, bytes) => IscsiInput::Received(ConnId(number), bytes),
                Heard::Sent(number, bytes) => IscsiInput::Sent(ConnId(number), bytes),
                // Who sends no more gets no more: a session needs both ways.
                Heard::PeerDone(number) => {
                    self.initiators.on(&mut self.driver, number, Driver::abort);
                    continue;
                }
                Heard::Closed(number) => IscsiInput::Closed(ConnId(number)),
            }));
        }
    }

    pub(super) fn take_iscsi_effect(&mut self, effect: IscsiEffect) {
        let (clients, driver) = (&mut self.initiators, &mut self.driver);
        let injector = &mut self.injector;
        match effect {
            IscsiEffect::Send(name, payload) => {
                let heard = clients.send(driver, injector, name.0, payload);
                self.tell_iscsi(heard);
            }
            IscsiEffect::Close(name) => {
                let heard = clients.close(driver, injector, name.0);
                self.tell_iscsi(heard);
            }
            IscsiEffect::Abort(name) => clients.on(driver, name.0, Driver::abort),
            IscsiEffect::Fill(name, fill) => clients.fill(driver, name.0, &fill),
            IscsiEffect::Pause(name) => clients.on(driver, name.0, Driver::pause_receive),
            IscsiEffect::Resume(name) => clients.on(driver, name.0, Driver::resume_receive),
            // The host has passed them to the router, and to the registry.
            IscsiEffect::Router(_)
            | IscsiEffect::Withdraw(_)
            | IscsiEffect::Reserve(_)
            | IscsiEffect::Obeyed(_) => {}
        }
    }
}
