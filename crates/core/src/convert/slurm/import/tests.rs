use super::*;
use crate::spec::to_toml;

fn imported(text: &str) -> (JobSpec, Vec<String>) {
    let (spec, findings) = import_sbatch(text).unwrap();
    (spec, findings.into_iter().map(|finding| format!("{} {}", finding.code, finding.message)).collect())
}

#[test]
fn a_script_of_a_site() {
    let (spec, said) = imported(
        "#!/bin/bash\n#SBATCH --job-name=Llama_8B\n#SBATCH -N 4 --gpus-per-node=8 --exclusive\n#SBATCH -p compute-gpu -A ml-research\n\
         #SBATCH --time=1-02:00:00 --mem=0 --constraint=p4de.24xlarge\n#SBATCH --output=%x_%j.out --nice=100 # log\n\nset -euo pipefail\n\
         module load cuda/12.8\nexport FI_PROVIDER=efa NCCL_DEBUG=\"INFO\"\nexport MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n\
         srun -l --container-image nvcr.io#nvidia/pytorch:25.09-py3 --container-mounts=/fsx:/fsx,/fsx/data:/data:ro \\\n  \
         torchrun --nnodes=4 --nproc_per_node 8 --rdzv_endpoint=$MASTER_ADDR:29500 --max-restarts 2 train.py --lr 3e-4\n",
    );
    insta::assert_snapshot!(format!("{}\n{}", to_toml(&spec), said.join("\n")));
}

#[test]
fn ranks_mpi_and_what_has_no_single_srun() {
    let head = "#!/bin/bash\n#SBATCH -J x --nodes=2 --ntasks-per-node=8 --gres=gpu:8\n";
    let (spec, said) = imported(&format!("{head}srun --mpi=pmix ./all_reduce -b 8\n"));
    assert_eq!((spec.launch, spec.roles[0].command.join(" ")), (Launch::Mpi, "./all_reduce -b 8".to_owned()));
    assert!(said.is_empty(), "{said:?}");
    let (spec, _) = imported(&format!("{head}srun -K1 -u python train.py\n"));
    assert_eq!((spec.launch, spec.roles[0].procs_per_node()), (Launch::PerRank, 8));
    let (spec, said) = imported(&format!("{head}srun hostname\nsrun python train.py\n"));
    assert!(
        matches!(spec.code, Some(Code::Script { .. })) && said[0].starts_with("W-IMPORT-COMMAND"),
        "{said:?}"
    );
    let (_, said) = imported(&format!("{head}srun python train.py --out $OUT\necho done\n"));
    assert_eq!(said.len(), 2, "{said:?}");
    let (spec, _) = imported(&format!("{head}for i in 1 2; do srun python train.py; done\n"));
    assert!(spec.code.is_some());
    assert_eq!(import_sbatch("#!/bin/sh\necho\n").unwrap_err().code, "E-IMPORT-JOB");
    assert_eq!(import_sbatch("#!/bin/sh\n#SBATCH -N1\n").unwrap_err().code, "E-IMPORT-JOB");
}

#[test]
fn values_in_slurms_units() {
    assert_eq!(options::memory("64G").as_deref(), Some("64Gi"));
    assert_eq!(options::memory("512000").as_deref(), Some("512000Mi"));
    assert_eq!(options::memory("0"), None);
    assert_eq!(options::slurm_duration("1-12").map(|time| time.as_secs()), Some(129_600));
    assert_eq!(options::slurm_duration("2-00:00:00").map(|time| time.as_secs()), Some(172_800));
    assert_eq!(options::slurm_duration("30").map(|time| time.as_secs()), Some(1800));
    assert_eq!(
        (options::slurm_duration("UNLIMITED"), options::slurm_duration("99999999999999999-00")),
        (None, None)
    );
    assert_eq!(
        (label("Llama_8B").as_str(), label("8b").as_str(), label("---").as_str()),
        ("llama-8b", "job-8b", "job")
    );
}

proptest::proptest! {
    #[test]
    fn no_text_panics(body in "(?s).{0,200}") {
        let _ = import_sbatch(&format!("#!/bin/bash\n#SBATCH {body}\nsrun {body}\n"));
    }
}
