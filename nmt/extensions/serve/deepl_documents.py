"""DeepL's calls for documents: upload one, ask for its status, and download its translation."""

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from starlette.responses import Response

from nmt.extensions.serve.calls import FILE_FIELD, Call, Fields, Upload, file_name, problem_of
from nmt.extensions.serve.documents import TranslatedDocument, translate_document
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.glossary import Glossary

MAX_DOCUMENTS: Final = 100  # per client: those that wait, are translated, or can be downloaded
MAX_CLIENT_BYTES: Final = 64 << 20  # of the documents of one client
MAX_ALL_BYTES: Final = 256 << 20  # of the documents of all clients
MAX_RUNNING: Final = 2  # documents of one client that are translated at the same time
DOCUMENT_SECONDS: Final = 3600.0  # how long a translation can be downloaded
PATIENCE_SECONDS: Final = 2.0  # how long a call for the status waits: short documents are done by then
RETRY_SECONDS: Final = 10
JobState = Literal["queued", "translating", "done", "error"]


@dataclass
class _Job:
    """A document and its translation.

    size: bytes that it takes
    share: of its texts that are translated, from 0 to 1
    """

    owner: str
    name: str
    size: int
    key: str = field(default_factory=lambda: secrets.token_hex(32).upper())
    state: JobState = "queued"
    began: float = 0.0
    share: float = 0.0
    result: TranslatedDocument | None = None
    error: str = ""
    task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "error")


class DocumentCalls:
    """The handlers of the calls. Documents stay in memory: until they are downloaded, for an hour, or until the server ends."""

    def __init__(self, service: Service) -> None:
        self._service, self._jobs = service, dict[str, _Job]()
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()  # by client

    @property
    def handlers(self) -> Mapping[str, Callable[[Call], Any]]:
        """The handlers by path. /v2/document is missing, because it also needs languages and a glossary: call `add`."""
        return {"/v2/document/{document_id}": self.status, "/v2/document/{document_id}/result": self.download}

    def add(
        self, owner: str, upload: Upload, source: str | None, target: str, glossary: Glossary | None
    ) -> dict[str, str]:
        """Start to translate a document. Raises ProblemError if there are too many.

        owner: the client's key, or its address if the server needs no key
        returns: the answer to the upload
        """
        self._make_room(owner, len(upload.content))
        job, document_id = _Job(owner, upload.name, len(upload.content)), secrets.token_hex(16).upper()
        job.task = asyncio.ensure_future(self._translate(document_id, job, upload, source, target, glossary))
        self._jobs[document_id] = job
        return {"document_id": document_id, "document_key": job.key}

    def _make_room(self, owner: str, size: int) -> None:
        """Forget a client's oldest translations if a new document needs their room. Raises ProblemError if that is not enough.

        size: bytes of the new document
        """
        kept = self._jobs.copy()
        finished = (document_id for document_id, job in self._jobs.items() if job.owner == owner and job.is_over)
        while _is_full(kept.values(), owner, size):
            if (document_id := next(finished, None)) is None:
                headers = {"Retry-After": str(RETRY_SECONDS)}
                raise ProblemError(429, "too many documents are waiting (try again later)", headers)
            del kept[document_id]
        for document_id in self._jobs.keys() - kept.keys():
            del self._jobs[document_id]

    async def _translate(
        self, document_id: str, job: _Job, upload: Upload, source: str | None, target: str, glossary: Glossary | None
    ) -> None:
        def progress(share: float) -> None:
            job.share = share

        turns = self._turns.setdefault(job.owner, asyncio.Semaphore(MAX_RUNNING))
        async with turns:
            job.state, job.began = "translating", time.monotonic()
            try:
                job.result = await translate_document(self._service, upload, source, target, glossary, progress)
                job.state, job.size = "done", len(job.result.content)
            except Exception as error:
                problem = problem_of(error, f"document {document_id}", self._service.options.timeout)
                job.state, job.error, job.size = "error", str(problem), 0
        asyncio.get_running_loop().call_later(DOCUMENT_SECONDS, self._jobs.pop, document_id, None)

    async def status(self, call: Call) -> dict[str, Any]:
        document_id, job = await self._found(call)
        if job.task is not None:
            await asyncio.wait([job.task], timeout=PATIENCE_SECONDS)
        answer: dict[str, Any] = {"document_id": document_id, "status": job.state}
        if job.state == "translating":
            seconds = time.monotonic() - job.began
            answer["seconds_remaining"] = round(seconds * (1 / job.share - 1)) + 1 if job.share else RETRY_SECONDS
        elif job.state == "error":
            answer |= {"error_message": job.error, "message": job.error}
        elif job.result is not None:
            answer["billed_characters"] = job.result.characters
            if job.result.report:
                answer["report"] = job.result.report
            if job.result.warnings:
                answer["warnings"] = job.result.warnings
        return answer

    async def download(self, call: Call) -> Response:
        document_id, job = await self._found(call)
        if job.result is None:
            if job.state == "error":
                raise ProblemError(400, f"the document could not be translated: {job.error}")
            raise ProblemError(503, "the document is not translated yet", {"Retry-After": "1"})
        del self._jobs[document_id]
        return Response(job.result.content, media_type="application/octet-stream")

    async def _found(self, call: Call) -> tuple[str, _Job]:
        """The document that a call names, if the call also knows its key. Raises ProblemError."""
        document_id, key = call.path["document_id"], (await call.fields()).get("document_key")
        job = self._jobs.get(document_id)
        if job is None or not isinstance(key, str) or not hmac.compare_digest(key.encode(), job.key.encode()):
            raise ProblemError(404, "document not found: it is unknown, expired or downloaded, or the key is wrong")
        return document_id, job


def _is_full(jobs: Collection[_Job], owner: str, size: int) -> bool:
    """Whether a client may not add a document of this size in bytes."""
    own = [job.size for job in jobs if job.owner == owner]
    total = size + sum(job.size for job in jobs)
    return len(own) >= MAX_DOCUMENTS or sum(own) + size > MAX_CLIENT_BYTES or total > MAX_ALL_BYTES


def uploaded(fields: Fields) -> Upload:
    """The document in a request. Raises ProblemError."""
    upload, name, wanted = (fields.get(field) for field in (FILE_FIELD, "filename", "output_format"))
    if not isinstance(upload, Upload):
        raise ProblemError(400, "Value for 'file' not supported: send a file as multipart/form-data.")
    if isinstance(name, str) and name:
        upload = Upload(file_name(name), upload.content)
    ending = PurePath(upload.name).suffix.lower()
    if wanted and f".{wanted}".lower() != ending:
        raise ProblemError(
            400, f"Value for 'output_format' not supported: documents stay in their format, {ending[1:]}."
        )
    return upload
