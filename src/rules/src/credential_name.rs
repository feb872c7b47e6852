//! Which names are those of credentials. It rather takes too many names: the values are left out of logs and archives.

/// Parts of such names, without separators.
const PARTS: [&str; 20] = [
    "passw",
    "passphrase",
    "passcode",
    "pwd",
    "token",
    "secret",
    "credential",
    "authorization",
    "cookie",
    "signature",
    "apikey",
    "accesskey",
    "privatekey",
    "sshkey",
    "signingkey",
    "sharedkey",
    "accountkey",
    "encryptionkey",
    "dockercfg",
    "dockerconfigjson",
];
/// Ends of such names, as in `superDigest`.
const ENDS: [&str; 5] = ["pass", "auth", "auths", "digest", "key"];
/// What may follow such an end, as in `client-key-data`.
const CONTENTS: [&str; 3] = ["data", "value", "hash"];
/// Last words of such names, as in `DB_PW`, and in the query of a signed URL.
const WORDS: [&str; 2] = ["pw", "sig"];
/// Ends of names that only refer to a credential.
const REFERENCES: [&str; 11] =
    ["name", "names", "ref", "refs", "path", "file", "namespace", "seconds", "pullsecrets", "location", "type"];
/// Ends of names that only look like those of a credential. `tls.key` is the name of a file.
const OTHERS: [&str; 5] = ["bypass", "compass", "clientauth", "topologykey", "tlskey"];
/// Names that begin like the user of a JAAS configuration, `user_super="PASSWORD"`.
const NO_USERS: [&str; 3] = ["user_agent", "user_id", "user_name"];

/// True if a value of this name may be a credential. The name may be that of a setting, a flag, a variable or a header.
#[must_use]
pub fn is_credential(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let ends = |ends: &[&str]| ends.iter().any(|end| plain.ends_with(end));
    if ends(&REFERENCES) || ends(&OTHERS) {
        return false;
    }
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let whole = CONTENTS.iter().find_map(|content| plain.strip_suffix(content)).unwrap_or(&plain);
    PARTS.iter().any(|part| plain.contains(part))
        || ENDS.iter().any(|end| whole.ends_with(end))
        || WORDS.iter().any(|word| last.eq_ignore_ascii_case(word))
        || (name.starts_with("user_") && !NO_USERS.contains(&name))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    fn names_of_credentials(
        #[values(
            "password",
            "DB_PASSWORD",
            "ssl.keyStore.password",
            "-Djavax.net.ssl.keyStorePassword",
            "storepass",
            "PGPASS",
            "passphrase",
            "pwd",
            "DB_PW",
            "authToken",
            "client_secret",
            "superDigest",
            "zookeeper.DigestAuthenticationProvider.superDigest",
            "auth",
            "auths",
            "authData",
            "Proxy-Authorization",
            "client-key-data",
            "API_KEY",
            "encryptionKey",
            "key",
            "user_super",
            "Set-Cookie",
            ".dockerconfigjson",
            "sig",
            "X-Amz-Signature"
        )]
        name: &str,
    ) {
        assert!(is_credential(name));
    }

    #[rstest]
    fn names_of_other_things(
        #[values(
            "secretName",
            "passwordFile",
            "ssl.keyStore.location",
            "ssl.keyStore.type",
            "imagePullSecrets",
            "tls.key",
            "topologyKey",
            "quorum.auth.enableSasl",
            "authProvider.1",
            "enforce.auth.schemes",
            "ssl.clientAuth",
            "java.security.auth.login.config",
            "keyTab",
            "bypass",
            "user_agent",
            "specHash",
            "tickTime",
            "name",
            "reason"
        )]
        name: &str,
    ) {
        assert!(!is_credential(name));
    }
}
