//! Why a procedure failed.

use crossdock_xdr::xdr_enum;
use thiserror::Error;

xdr_enum! {
    /// `nfsstat3` without NFS3_OK, which is the `Ok` of a [`Reply`](crate::Reply)
    /// (RFC 1813 sections 2.5 and 2.6).
    #[derive(Error)]
    pub enum Status as "nfsstat3" {
        /// NFS3ERR_PERM: only the owner or the superuser may.
        #[error("not owner")]
        Perm = 1,
        /// NFS3ERR_NOENT: there is no such name.
        #[error("no such file or directory")]
        NoEnt = 2,
        /// NFS3ERR_IO: a disk failed.
        #[error("input or output error")]
        Io = 5,
        /// NFS3ERR_NXIO: no such device.
        #[error("no such device or address")]
        Nxio = 6,
        /// NFS3ERR_ACCES: the caller has no permission.
        #[error("permission denied")]
        Acces = 13,
        /// NFS3ERR_EXIST: the name is taken.
        #[error("file exists")]
        Exist = 17,
        /// NFS3ERR_XDEV: a hard link across devices.
        #[error("cross-device link")]
        XDev = 18,
        /// NFS3ERR_NODEV: no such device.
        #[error("no such device")]
        NoDev = 19,
        /// NFS3ERR_NOTDIR: not a directory.
        #[error("not a directory")]
        NotDir = 20,
        /// NFS3ERR_ISDIR: a directory.
        #[error("is a directory")]
        IsDir = 21,
        /// NFS3ERR_INVAL: an argument makes no sense.
        #[error("invalid argument")]
        Inval = 22,
        /// NFS3ERR_FBIG: larger than a file can be.
        #[error("file too large")]
        FBig = 27,
        /// NFS3ERR_NOSPC: the device is full.
        #[error("no space left")]
        NoSpc = 28,
        /// NFS3ERR_ROFS: the file system cannot be written.
        #[error("read-only file system")]
        Rofs = 30,
        /// NFS3ERR_MLINK: too many hard links.
        #[error("too many links")]
        MLink = 31,
        /// NFS3ERR_NAMETOOLONG: a name is too long.
        #[error("name too long")]
        NameTooLong = 63,
        /// NFS3ERR_NOTEMPTY: the directory is not empty.
        #[error("directory not empty")]
        NotEmpty = 66,
        /// NFS3ERR_DQUOT: the quota is used up.
        #[error("quota exceeded")]
        DQuot = 69,
        /// NFS3ERR_STALE: the file is gone.
        #[error("stale file handle")]
        Stale = 70,
        /// NFS3ERR_REMOTE: too many levels of remote in the path.
        #[error("too many levels of remote in path")]
        Remote = 71,
        /// NFS3ERR_BADHANDLE: the server never issued this handle.
        #[error("bad file handle")]
        BadHandle = 10001,
        /// NFS3ERR_NOT_SYNC: the guard of SETATTR does not match.
        #[error("guard does not match")]
        NotSync = 10002,
        /// NFS3ERR_BAD_COOKIE: the cookie of READDIR is stale.
        #[error("stale directory cookie")]
        BadCookie = 10003,
        /// NFS3ERR_NOTSUPP: the operation is not supported.
        #[error("not supported")]
        NotSupp = 10004,
        /// NFS3ERR_TOOSMALL: the client's buffer is too small.
        #[error("buffer or request too small")]
        TooSmall = 10005,
        /// NFS3ERR_SERVERFAULT: the server failed in a way without a name.
        #[error("server fault")]
        ServerFault = 10006,
        /// NFS3ERR_BADTYPE: this type of object cannot be made.
        #[error("type not supported")]
        BadType = 10007,
        /// NFS3ERR_JUKEBOX: begun, but try again later.
        #[error("try again later")]
        Jukebox = 10008,
    }
}
