//! TUN devices and namespaces, by the kernel's own calls: no program is needed for it.

use rustix::thread::UnshareFlags;
use std::ffi::c_char;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A device by which packets without a link layer leave and enter a namespace. It goes with this descriptor.
pub(crate) struct Tun {
    pub file: File,
}

/// A namespace made in a thread of its own, with loopback and a device in it.
pub(crate) fn namespace(address: Ipv4Addr, mtu: u32) -> io::Result<(File, Tun)> {
    let make = move || {
        // SAFETY: only this thread, which ends below, changes its network; no descriptor is closed.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        let namespace = File::open("/proc/thread-self/ns/net")?;
        let socket = socket()?;
        set_up(&socket, "lo")?;
        let tun = tun("node0", address, mtu)?;
        Ok((namespace, tun))
    };
    let thread = std::thread::Builder::new().name("namespace".into()).spawn(make)?;
    thread.join().map_err(|_| io::Error::other("the thread that made a namespace panicked"))?
}

/// A device in the namespace that this thread is in.
///
/// # Errors
/// `ResourceBusy` if another process has a device of this name.
pub(crate) fn tun(name: &str, address: Ipv4Addr, mtu: u32) -> io::Result<Tun> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    call(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request)?;

    let socket = socket()?;
    let set = |number: libc::c_ulong, value: libc::__c_anonymous_ifr_ifru| {
        let mut request = self::request(name);
        request.ifr_ifru = value;
        call(socket.as_raw_fd(), number as _, &mut request)
    };
    set(libc::SIOCSIFADDR as _, libc::__c_anonymous_ifr_ifru { ifru_addr: internet(address) })?;
    let mask = internet(Ipv4Addr::new(255, 255, 255, 0));
    set(libc::SIOCSIFNETMASK as _, libc::__c_anonymous_ifr_ifru { ifru_netmask: mask })?;
    set(libc::SIOCSIFMTU as _, libc::__c_anonymous_ifr_ifru { ifru_mtu: mtu as libc::c_int })?;
    // Longer than the default of 500, which a burst of one TCP connection can fill.
    set(libc::SIOCSIFTXQLEN as _, libc::__c_anonymous_ifr_ifru { ifru_metric: 2000 })?;
    set_up(&socket, name)?;
    Ok(Tun { file })
}

fn set_up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    call(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &mut request)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor, owned by nobody else.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(socket)) }
    }
}

fn request(name: &str) -> libc::ifreq {
    assert!(name.len() < libc::IFNAMSIZ, "the kernel has no room for the device's name {name:?}");
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

fn call(descriptor: i32, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every call made here reads or writes one `ifreq`, which lives through it.
    if unsafe { libc::ioctl(descriptor, number, std::ptr::from_mut(request)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn internet(address: Ipv4Addr) -> libc::sockaddr {
    let bytes = address.octets();
    let mut data = [0; 14];
    // Two bytes of port, then the address, as `sockaddr_in` has them.
    for (to, from) in data[2..6].iter_mut().zip(bytes) {
        *to = from as c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}
