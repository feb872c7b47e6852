//! The conversation of the network check. It is that of servers as far as a network sees: TLS, in which the client speaks first,
//! and a large block in both directions. Then the client may ask for more, to measure how fast a snapshot would come.
//!
//! The client measures the round trip by the handshake, which every version of a probe answers.
//!
//! Some paths carry TLS alone, and some drop large packets: a tunnel whose packets are larger than the network allows. The
//! certificates prove nothing.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{PrivatePkcs8KeyDer, ServerName},
    version::TLS13,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::authority_verifier::AuthorityVerifier;

/// Bytes that each side sends at once: many full packets.
const BLOCK: usize = 16 << 10;
/// Time limit of a connection with its text, and of the block.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which a path is measured. The best part of it counts: a connection begins slowly.
const MEASURED: Duration = Duration::from_secs(3);
/// Parts of a second.
const PARTS: u64 = 2;
/// Longest text, in bytes.
const MAX_TEXT: u64 = 256;
/// The name in all certificates.
const NAME: &str = "probe.mczk";

/// How far a conversation came.
#[derive(Debug)]
pub enum Heard {
    /// To its end: the text, and the block in both directions.
    All(String),
    /// To the text. The block was lost.
    TextAlone(String),
    /// To its end, but a snapshot would come too slowly: the text, and the bytes per second.
    TooSlow(String, u64),
    /// Not so far.
    Nothing(io::ErrorKind),
}

/// One group for keys, so that the handshake fits into small packets: a path that drops large ones then shows as such.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { kx_groups: vec![aws_lc_rs::kx_group::X25519], ..aws_lc_rs::default_provider() })
}

/// The side of a probe that answers, with a new certificate.
///
/// # Errors
/// Never for these parameters.
pub fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let pair = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![pair.cert.der().clone()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers a connection with a line, and sends back the block that follows. If the client asks for more, it sends blocks until
/// the client ends the connection.
///
/// # Errors
/// If the connection ends before.
pub async fn answer(stream: TcpStream, tls: &TlsAcceptor, line: &str) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    stream.write_all(line.as_bytes()).await?;
    stream.flush().await?;
    let mut block = vec![0; BLOCK];
    stream.read_exact(&mut block).await?;
    stream.write_all(&block).await?;
    stream.flush().await?;
    if stream.read(&mut [0]).await.unwrap_or(0) > 0 {
        loop {
            stream.write_all(&block).await?;
        }
    }
    stream.shutdown().await
}

/// Speaks with the probe at an address, and measures the round trip. With a rate in bytes per second it measures the path too.
///
/// The handshake of TLS costs one round trip and a signature, so the measured time is never too short. That of TCP would be, since
/// a proxy on the path answers it itself. So might be that of the text: its client may have to wait once it has spoken.
pub async fn hear(address: SocketAddr, rate: Option<u64>) -> (Heard, Option<Duration>) {
    let opened = async {
        let provider = provider();
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AuthorityVerifier::without_authority(provider)))
            .with_no_client_auth();
        let (tls, name) = (TlsConnector::from(Arc::new(config)), ServerName::try_from(NAME).map_err(io::Error::other)?);
        let socket = TcpStream::connect(address).await?;
        let began = Instant::now();
        let mut stream = BufReader::new(tls.connect(name, socket).await?);
        let round_trip = began.elapsed();
        let mut line = Vec::new();
        (&mut stream).take(MAX_TEXT).read_until(b'\n', &mut line).await?;
        io::Result::Ok((stream, String::from_utf8_lossy(&line).into_owned(), round_trip))
    };
    let (mut stream, text, round_trip) = match timeout(TIMEOUT, opened).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return (Heard::Nothing(error.kind()), None),
        Err(_) => return (Heard::Nothing(io::ErrorKind::TimedOut), None),
    };
    let exchanged = async {
        let mut block = vec![0; BLOCK];
        stream.write_all(&block).await?;
        stream.flush().await?;
        stream.read_exact(&mut block).await
    };
    let heard = match (timeout(TIMEOUT, exchanged).await, rate) {
        (Ok(Ok(_)), None) => Heard::All(text),
        (Ok(Ok(_)), Some(rate)) => match measure(&mut stream, rate).await {
            Some(measured) => Heard::TooSlow(text, measured),
            None => Heard::All(text),
        },
        _ => Heard::TextAlone(text),
    };
    (heard, Some(round_trip))
}

/// Asks for more. The best rate that was measured, unless a part of the time shows that this one is possible. A probe that is
/// older sends nothing, and shows nothing.
async fn measure(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), rate: u64) -> Option<u64> {
    stream.write_all(&[1]).await.ok()?;
    stream.flush().await.ok()?;
    let mut best = 0;
    let mut buffer = vec![0; BLOCK];
    for _ in 0..MEASURED.as_secs() * PARTS {
        let end = Instant::now() + Duration::from_secs(1) / u32::try_from(PARTS).unwrap_or(1);
        let mut bytes = 0;
        // A read that is ready every time never meets the deadline.
        while Instant::now() < end
            && let Ok(read) = timeout_at(end, stream.read(&mut buffer)).await
        {
            let count = read.ok().filter(|count| *count > 0)?;
            bytes += u64::try_from(count).unwrap_or(0);
            if bytes >= rate / PARTS {
                return None;
            }
        }
        best = best.max(bytes * PARTS);
    }
    Some(best)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use tokio::{
        io::{AsyncRead, AsyncWrite, copy},
        net::TcpListener,
    };

    use super::*;

    /// Where a path begins, its address, and that of the probe behind it.
    async fn path_to_a_probe() -> (TcpListener, SocketAddr, SocketAddr) {
        let (probe, path) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (behind, address) = (probe.local_addr().unwrap(), path.local_addr().unwrap());
        tokio::spawn(async move {
            let (stream, _) = probe.accept().await.unwrap();
            answer(stream, &acceptor().unwrap(), "it is m1\n").await
        });
        (path, address, behind)
    }

    /// Passes everything on, and back so many bytes at once, each time after a pause.
    fn pass_slowly(path: TcpListener, behind: SocketAddr, bytes: usize, pause: Duration) {
        tokio::spawn(async move {
            let (mut near, mut far) = (path.accept().await.unwrap().0, TcpStream::connect(behind).await.unwrap());
            let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (near.split(), far.split());
            let back = async {
                let mut buffer = vec![0; bytes];
                while let Ok(count) = far_read.read(&mut buffer).await
                    && count > 0
                {
                    tokio::time::sleep(pause).await;
                    if near_write.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            };
            tokio::join!(copy(&mut near_read, &mut far_write), back)
        });
    }

    /// A path of 64 KiB a second.
    #[tokio::test]
    async fn a_path_too_slow_for_a_snapshot_is_noticed() {
        let slow = async |rate: u64| {
            let (path, address, behind) = path_to_a_probe().await;
            pass_slowly(path, behind, 8 << 10, Duration::from_millis(125));
            hear(address, Some(rate)).await.0
        };
        let (enough, more) = tokio::join!(slow(16 << 10), slow(1 << 20));
        assert!(matches!(enough, Heard::All(_)), "{enough:?}");
        assert!(matches!(more, Heard::TooSlow(_, rate) if (16 << 10..=128 << 10).contains(&rate)), "{more:?}");
    }

    /// The path answers TCP at once. The handshake and the text take two round trips at least.
    #[tokio::test]
    async fn the_round_trip_is_that_of_one_answer() {
        let (path, address, behind) = path_to_a_probe().await;
        let pause = Duration::from_millis(250);
        pass_slowly(path, behind, BLOCK, pause);
        let (heard, round_trip) = hear(address, None).await;
        assert!(matches!(heard, Heard::All(_)), "{heard:?}");
        assert!(round_trip.is_some_and(|measured| (pause..pause * 2).contains(&measured)), "{round_trip:?}");
    }

    /// Passes on so many bytes, and loses the rest without an answer.
    async fn pass(bytes: u64, from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let _ = copy(&mut from.take(bytes), &mut to).await;
        std::future::pending::<()>().await;
    }

    /// Hears a probe behind a path that passes so many bytes in each direction.
    async fn heard(there: u64, back: u64) -> Heard {
        let (path, address, behind) = path_to_a_probe().await;
        tokio::spawn(async move {
            let (mut near, mut far) = (path.accept().await.unwrap().0, TcpStream::connect(behind).await.unwrap());
            let ((near_read, near_write), (far_read, far_write)) = (near.split(), far.split());
            tokio::join!(pass(there, near_read, far_write), pass(back, far_read, near_write))
        });
        hear(address, None).await.0
    }

    /// The handshake and the text need less than one full packet in each direction.
    #[tokio::test]
    async fn a_path_that_loses_large_blocks_in_one_direction_is_noticed() {
        let everything = u64::MAX;
        let (all, there, back) =
            tokio::join!(heard(everything, everything), heard(1200, everything), heard(everything, 1200));
        assert!(matches!(&all, Heard::All(text) if text == "it is m1\n"), "{all:?}");
        for heard in [there, back] {
            assert!(matches!(&heard, Heard::TextAlone(text) if text == "it is m1\n"), "{heard:?}");
        }
    }

    #[tokio::test]
    async fn a_silent_port_and_a_closed_one_say_nothing() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let heard = hear(silent.local_addr().unwrap(), None).await;
        assert!(matches!(heard, (Heard::Nothing(io::ErrorKind::TimedOut), None)), "{heard:?}");
        let address = silent.local_addr().unwrap();
        drop(silent);
        let heard = hear(address, None).await;
        assert!(matches!(heard, (Heard::Nothing(io::ErrorKind::ConnectionRefused), None)), "{heard:?}");
    }
}
