//! Listeners for IPv6 and IPv4 at once.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// Connections that wait to be accepted, as tokio's own listeners have it.
const BACKLOG: i32 = 1024;

/// Listens on an address. `[::]` means all addresses of both families, or all of IPv4 if the kernel has no IPv6. Every
/// other address is taken as it is.
///
/// # Errors
/// If the address is in use, or not of this machine.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match bind_exactly(address) {
        Err(error) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && lacks_ipv6(&error) => {
            bind_exactly(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
        }
        result => result,
    }
}

fn bind_exactly(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // The default of the kernel is a setting of the node: net.ipv6.bindv6only.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restarted process must not wait for the connections of the former one.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// True for the errors of a kernel without IPv6: the family does not exist, or has no address.
fn lacks_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].iter().any(|errno| code == Some(errno.raw_os_error()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use tokio::net::TcpStream;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

    async fn answers(listener: &TcpListener, ip: IpAddr) -> bool {
        let port = listener.local_addr().unwrap().port();
        let (connected, accepted) = tokio::join!(TcpStream::connect((ip, port)), async {
            tokio::time::timeout(std::time::Duration::from_secs(1), listener.accept()).await
        });
        connected.is_ok() && accepted.is_ok_and(|accepted| accepted.is_ok())
    }

    /// Counts a check that this machine cannot make. Its output is that of the program, which no test captures.
    fn skipped(check: &str) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/skipped.sh");
        let status = Command::new(script).args(["this machine has no IPv6 loopback address", check]).status();
        assert!(status.unwrap().success(), "{check} is required");
    }

    #[tokio::test]
    async fn one_listener_serves_both_families() {
        let listener = bind(ANY).unwrap();
        assert!(answers(&listener, Ipv4Addr::LOCALHOST.into()).await);
        if bind(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)).is_err() {
            skipped("one listener serves both families");
            return;
        }
        assert!(answers(&listener, Ipv6Addr::LOCALHOST.into()).await);
    }

    #[tokio::test]
    async fn an_address_of_one_family_is_taken_as_it_is() {
        let listener = bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)).unwrap();
        assert!(listener.local_addr().unwrap().is_ipv4());
        assert!(!answers(&listener, Ipv6Addr::LOCALHOST.into()).await);
        match bind(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)) {
            Ok(listener) => assert!(!answers(&listener, Ipv4Addr::LOCALHOST.into()).await),
            Err(_) => skipped("an IPv6 address is taken as it is"),
        }
    }

    #[test]
    fn only_a_lack_of_ipv6_falls_back() {
        for (errno, falls_back) in [(Errno::AFNOSUPPORT, true), (Errno::ADDRINUSE, false), (Errno::ACCESS, false)] {
            assert_eq!(lacks_ipv6(&io::Error::from_raw_os_error(errno.raw_os_error())), falls_back, "{errno}");
        }
    }
}
