//! What AWS says of its own API, kept where the gateway is compiled from.

use anyhow::Result;

use crate::{command::Cmd, setup, workspace::Workspace};

/// Reads them from botocore.
const SCRIPT: &str = "xtask/service_model.py";
/// Has them. A test of the integration tests compares it with what the script says.
const FACTS: &str = "router/src/aws/service/sagemaker.json";

/// Writes the facts anew: after a newer botocore in `tests/requirements.txt`.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    let python = setup::python(workspace)?;
    let facts = Cmd::new(python).arg(workspace.root.join(SCRIPT)).read()?;
    std::fs::write(workspace.root.join(FACTS), facts)?;
    println!("wrote {FACTS}");
    Ok(())
}
