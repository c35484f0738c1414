//! What exceptions say: how much each explains, and its class.

use weftrun_nccl::failure::{Exception, Frame};

use super::class::CauseClass;
use super::grade::Grade;

/// Returns the exception to report: the one that caused another to be raised, where the program shows it.
pub(super) fn root(exception: &Exception) -> &Exception {
    let earlier = exception.cause.as_deref();
    let weighty = |earlier: &Exception| {
        matches!(judge(earlier).1, CauseClass::CudaOutOfMemory | CauseClass::CudaError)
            || earlier.message.contains("No space left on device")
    };
    match earlier {
        Some(earlier) if exception.direct || weighty(earlier) => earlier,
        _ => exception,
    }
}

/// Returns whether NCCL's result was raised: what went wrong is in NCCL's own words.
pub(super) fn is_nccl(exception: &Exception) -> bool {
    exception.short_name() == "DistBackendError"
        || [
            "NCCL error",
            "NCCL Error",
            "NCCL operation nccl",
            "ncclRemoteError",
            "unhandled system error",
            "unhandled cuda error",
        ]
        .iter()
        .any(|words| exception.message.contains(words))
}

/// Returns whether an exception only tells that another process failed: what went wrong is in that one's output. The
/// wordings are those of vLLM, SGLang, Ray, Horovod and `concurrent.futures`, read 2026-11-26.
pub(super) fn is_of_another(exception: &Exception) -> bool {
    let names =
        ["ActorDiedError", "RayActorError", "WorkerCrashedError", "BrokenProcessPool", "EngineDeadError"];
    let words = [
        "See stack trace for root cause",
        "See root cause above",
        "Horovod has been shut down",
        "due to an exception in a background process",
        "but there are other ranks that didn't finish",
        "but there are other ranks th",
    ];
    names.contains(&exception.short_name()) || words.iter().any(|words| exception.message.contains(words))
}

/// Returns the reason of a failed collective of Huawei's HCCL, which stands below the exception: `EI0006: …` (CANN
/// 8.5's "HCCL Errors": EI0002 Communication Operation Timeout, EI0006 Get Socket Timeout; read 2026-11-26).
fn reason_of_hccl(exception: &Exception) -> Option<&str> {
    exception.last_error.as_deref().filter(|reason| reason.starts_with("EI00"))
}

/// Returns how much an exception explains, and its class.
pub(super) fn judge(exception: &Exception) -> (Grade, CauseClass) {
    let (name, message) = (exception.short_name(), exception.message.as_str());
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    // Ray's own exception of this name is about the memory of the host.
    if says(&["node running low on memory", "node was running low on memory"]) {
        return (Grade::Own, CauseClass::OutOfMemory);
    }
    let full = ["CUDA out of memory", "CUDA error: out of memory", "RESOURCE_EXHAUSTED: Out of memory"];
    if name == "OutOfMemoryError" || says(&full) {
        return (Grade::Own, CauseClass::CudaOutOfMemory);
    }
    if says(&["Detected mismatch between collectives on ranks"]) {
        return (Grade::Own, CauseClass::CollectiveMismatch);
    }
    // Rank 0 makes the id: it did not come, or ended.
    if says(&["setting up NCCL communicator"]) {
        return (Grade::Rendezvous, CauseClass::Rendezvous);
    }
    if is_nccl(exception) {
        if says(&["invalid usage", "invalid argument", "ncclInvalid"]) {
            return (Grade::Own, CauseClass::Exception);
        }
        if says(&["unhandled cuda error"]) {
            return (Grade::Own, CauseClass::CudaError);
        }
        // NCCL failed by itself, and the log does not have its own words.
        if says(&["unhandled system error", "internal error"]) {
            return (Grade::Reported, CauseClass::Nccl);
        }
        return (Grade::Remote, CauseClass::ExitCode);
    }
    if is_of_another(exception) {
        return (Grade::Remote, CauseClass::ExitCode);
    }
    if says(&["NCCL communicator was aborted", "Watchdog caught", "NCCL timeout", "remote process exited"]) {
        return (Grade::Remote, CauseClass::ExitCode);
    }
    if name == "AcceleratorError"
        || says(&[
            "CUDA error",
            "Triton Error [CUDA]",
            "CUDA driver error",
            "CUDA unknown error",
            "cudaGetDeviceCount",
            "cuda runtime error",
            "CUBLAS_STATUS",
            "cuDNN error",
            "CUDNN_STATUS",
        ])
    {
        return (Grade::Own, CauseClass::CudaError);
    }
    // HCCL: EI0002 and EI0006 are timeouts of a rank that waits for another one.
    if reason_of_hccl(exception)
        .is_some_and(|reason| ["EI0002", "EI0006"].iter().any(|code| reason.starts_with(code)))
    {
        return (Grade::Waiting, CauseClass::CollectiveTimeout);
    }
    // The speaker waits for a peer that does not come.
    if says(&["Timed out waiting"]) && says(&["recv operation", "send operation"]) {
        return (Grade::Waiting, CauseClass::CollectiveTimeout);
    }
    // While the ranks gather, a connection that breaks is to the store.
    let gathers = |frame: &Frame| {
        let module = frame.file.ends_with("torch/distributed/rendezvous.py");
        module || frame.function == "init_process_group" && frame.file.contains("torch/distributed/")
    };
    if exception.innermost.as_ref().is_some_and(gathers) {
        return (Grade::Rendezvous, CauseClass::Rendezvous);
    }
    let broken = &[
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Connection was likely closed",
        "recvValue failed",
        "sendBytes failed",
        "gloo/transport",
        "Application timeout caused pair closure",
        "but received errors while waiting",
    ];
    // A check of Gloo's that does not hold is of this process.
    if says(broken) && !says(&["[enforce fail at"])
        || matches!(name, "BrokenPipeError" | "ConnectionResetError" | "EOFError" | "KeyboardInterrupt")
    {
        return (Grade::Broken, CauseClass::ExitCode);
    }
    let rendezvous = &[
        "EADDRINUSE",
        "ddress already in use",
        "failed to listen",
        "client socket has timed out",
        "ailed to connect",
        "Name or service not known",
        "Temporary failure in name resolution",
        "clients joined",
        "wait timeout after",
        "Timed out waiting for clients",
        "Socket Timeout",
        "connect() timed out",
        "store",
    ];
    let distributed =
        matches!(name, "DistNetworkError" | "DistStoreError") || exception.name.contains("endezvous");
    // Raised where PyTorch makes its store, whose address is that of the rendezvous.
    let in_torch =
        exception.innermost.as_ref().is_some_and(|frame| frame.file.contains("torch/distributed/"));
    if distributed
        || says(&["not reachable via ssh"])
        || (says(rendezvous)
            && (exception.frame.is_none()
                || in_torch
                || message.contains("c10d")
                || message.contains("TCPStore")))
    {
        return (Grade::Rendezvous, CauseClass::Rendezvous);
    }
    (Grade::Own, CauseClass::Exception)
}

/// Returns the message of an exception, without parts that differ between ranks or only fill the line.
pub(super) fn what(class: CauseClass, exception: &Exception) -> String {
    if let Some(reason) = reason_of_hccl(exception) {
        return format!("HCCL: {reason}");
    }
    let what = exception.what();
    if class == CauseClass::CudaOutOfMemory
        && let Some((head, rest)) = what.split_once("Tried to allocate ")
        && let Some(end) = rest.find("iB").map(|at| at + 2)
        && let Some(size) = rest.get(..end)
    {
        return format!("{head}Tried to allocate {size}");
    }
    what
}

/// Returns whether a connection to the store of the rendezvous broke.
pub(super) fn is_of_store(exception: &Exception) -> bool {
    let of_launcher = |frame: &Frame| frame.file.ends_with("elastic/rendezvous/c10d_rendezvous_backend.py");
    exception.innermost.as_ref().is_some_and(of_launcher)
        || ["recvValue failed", "sendBytes failed", "Did the remote server shutdown or crash", "TCPStore"]
            .iter()
            .any(|words| exception.message.contains(words))
}
