//! Applies the fabric to a raw manifest, offline and without touching a byte that need not change.
//! `cargo run -p weftrun --example mutate_manifest job.yaml > mutated.yaml`
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its result")]

use weftrun::convert::{MutateOptions, Splitter, Start, mutate};
use weftrun::core::catalogue::Catalogue;
use weftrun::core::fabric::{Fabric, FabricRequest, Profiles};
use weftrun::{Error, ErrorKind};

fn main() -> weftrun::Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::new(ErrorKind::Usage, "say which manifest"))?;
    let text = std::fs::read(&path)
        .map_err(|error| Error::new(ErrorKind::NotFound, format!("cannot read {path}")).with_source(error))?;

    let profile = Profiles::builtin().get(Profiles::for_manifest(Fabric::Efa))?;
    let options = FabricRequest { kind: Fabric::Efa, ..FabricRequest::default() };
    let catalogue = Catalogue::builtin();
    let settings = MutateOptions::offline(&profile, &options, &catalogue);

    // Nothing is printed before all of it is good: in a pipe to kubectl half a job would be worse than none.
    let mut out = String::new();
    let mut documents = Splitter::default();
    documents.push(&text);
    documents.finish();
    while let Some(document) = documents.next_document() {
        let document = String::from_utf8_lossy(&document);
        let mutated = mutate(&document, Start::of(&path), &settings)?;
        for job in &mutated.jobs {
            eprintln!("{} {}: {}", job.kind, job.name, job.actions.join(", "));
            if let Some(finding) = job.error().cloned() {
                return Err(Error::from_finding(ErrorKind::InvalidSpec, finding));
            }
        }
        out.push_str(&mutated.text);
    }
    print!("{out}");
    Ok(())
}
