//! Modify: takes capabilities out of an exNode, before it is given to others.

use crossdock_exnode::ExNode;

/// Takes out the capabilities that are named; whoever has the exNode then can do without them
/// what is left.
pub fn modify(exnode: &mut ExNode, read: bool, write: bool, manage: bool) {
    for mapping in &mut exnode.mappings {
        for (capability, goes) in [
            (&mut mapping.read, read),
            (&mut mapping.write, write),
            (&mut mapping.manage, manage),
        ] {
            if goes {
                *capability = None;
            }
        }
    }
}
