"""Rules for host memory."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import rule

HOST_RULES = (
    *(rule(FailureKind.WINDOWS_ABORT, words) for words in ("0xC0000409", "0xc0000409", "3221226505", "-1073740791")),
    rule(FailureKind.COMMIT_LIMIT, "-1073741801"),
    rule(FailureKind.COMMIT_LIMIT, "0xc0000017"),
    rule(FailureKind.COMMIT_LIMIT, "0xC000012D"),
    rule(FailureKind.COMMIT_LIMIT, "0xc000012d"),
    rule(FailureKind.COMMIT_LIMIT, "WinError 8]"),
    rule(FailureKind.COMMIT_LIMIT, "WinError 1455"),
    rule(FailureKind.COMMIT_LIMIT, "WinError 1450"),
    rule(FailureKind.COMMIT_LIMIT, "Not enough memory resources are available"),
    rule(FailureKind.COMMIT_LIMIT, "error code: <1455>"),
    rule(FailureKind.COMMIT_LIMIT, "(os error 1455)"),
    rule(FailureKind.COMMIT_LIMIT, "paging file is too small"),
    rule(FailureKind.COMMIT_LIMIT, "0xC0000017"),
    rule(FailureKind.COMMIT_LIMIT, "3221225495"),
    rule(FailureKind.ADDRESS_SPACE, "failed to map segment from shared object"),
    rule(FailureKind.SHM_FULL, "unable to write to file </torch_"),
    rule(FailureKind.SHM_FULL, "unable to allocate shared memory"),
    rule(
        FailureKind.MAPPING_LIMIT,
        "unable to mmap",
        r"unable to mmap \d+ bytes from file <[^>]*>: Cannot allocate memory",
    ),
    rule(FailureKind.SHM_FULL, "unable to mmap", r"unable to mmap \d+ bytes from file </torch_"),
    rule(
        FailureKind.SHM_FULL,
        "Usage of EmptyDir volume",
        r"EmptyDir volume \"[^\"]*shm|EmptyDir volume[\s\S]{0,600}?Medium: +Memory",
    ),
    rule(FailureKind.SHM_FULL, "/shm/nccl", r"(?:[Ee]rror|[Ff]ail).*(?:extend|attach|open|creat).*/dev/shm/nccl"),
    rule(
        FailureKind.SHM_FULL, "No space left on device", r"(?:/dev/shm|</torch_|shared memory).*No space left on device"
    ),
    rule(
        FailureKind.SHM_FULL, "No space left on device", r"No space left on device.*(?:/dev/shm|torch_\d+_|/pym-|/psm_)"
    ),
    rule(FailureKind.SHM_FULL, "posix_fallocate", r"posix_fallocate.{0,80}(?:[Nn]o space|fail|error)"),
    rule(FailureKind.SHM_FULL, "Error while creating shared memory segment"),
    rule(FailureKind.OPEN_FILES, "Too many open files"),
    rule(FailureKind.OPEN_FILES, "received 0 items of ancdata"),
    rule(FailureKind.CPU_OOM, "DefaultCPUAllocator: ", r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"),
    rule(FailureKind.CPU_OOM, "C10 Out of Memory"),
    rule(FailureKind.CPU_OOM, "Torch: not enough memory"),
    rule(FailureKind.CPU_OOM, "posix_memalign", r"posix_memalign.*12 vs\.? 0"),
    rule(FailureKind.CPU_OOM, "DefaultCPUAllocator", r"DefaultCPUAllocator.*(?:allocate|memory)"),
    # oneDNN without memory; unsupported operations mention a "primitive descriptor" instead.
    rule(FailureKind.CPU_OOM, "could not create a primitive", r"could not create a primitive(?! desc)"),
    rule(FailureKind.BAD_ALLOC, "std::bad_alloc"),
    rule(FailureKind.BAD_ALLOC, "bad allocation", r"(?:Error|[Ee]rror|what\(\)): bad allocation\s*$"),
    rule(FailureKind.MEMORY_ERROR, "_ArrayMemoryError"),
    rule(
        FailureKind.MEMORY_ERROR, "Unable to allocate ", r"Unable to allocate [\d.]+ (?:[KMGTPE]iB|bytes) for an array"
    ),
    rule(FailureKind.MEMORY_ERROR, "(-4:Insufficient memory)"),
    rule(FailureKind.MEMORY_ERROR, "MemoryError", r"(?:^|[\s|\]:>])MemoryError(?::|\s*$)"),
    rule(FailureKind.ENOMEM, "[Errno 12]"),
    rule(
        FailureKind.ENOMEM,
        "annot allocate memory",
        r"(?:fork|mmap).*annot allocate memory|[:\]] Cannot allocate memory|annot allocate memory \(os error 12\)",
    ),
    rule(FailureKind.MEMORY_ERROR, "ArrowMemoryError"),
    # R, in its languages.
    rule(FailureKind.MEMORY_ERROR, "cannot allocate vector of "),
    rule(FailureKind.MEMORY_ERROR, "kann Vektor der Gr"),
    rule(FailureKind.MEMORY_ERROR, "impossible d'allouer un vecteur"),
    rule(FailureKind.MEMORY_ERROR, "no se puede ubicar un vector"),
    rule(FailureKind.MEMORY_ERROR, "CL_OUT_OF_HOST_MEMORY"),
    rule(FailureKind.MEMORY_ERROR, "Out of Host Memory", r"Error\W.*Out of Host Memory"),
    rule(FailureKind.MEMORY_ERROR, " of size ", r"\b(?:m|re)alloc of size \d+ failed"),
    rule(FailureKind.BAD_ALLOC, "memory allocation of", r"memory allocation of \d+ bytes failed"),
    rule(FailureKind.MEMORY_ERROR, "java.lang.OutOfMemoryError"),
    rule(FailureKind.MEMORY_ERROR, "requires more system memory"),  # Ollama
)
