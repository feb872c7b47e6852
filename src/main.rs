//! The command line of mczk.
fn main() -> anyhow::Result<()> {
    print!("{}", mczk::api::crd::yaml()?);
    Ok(())
}
