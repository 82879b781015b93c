"""DeepL's calls for glossaries: version 2, with one direction per glossary, and version 3, with any number."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from nmt.decoders.options import phrase_decoders
from nmt.engines.base import MODEL_KINDS, kind_of_folder
from nmt.engines.torch_engine import has_torch
from nmt.extensions.serve.calls import Call, Fields, json_response
from nmt.extensions.serve.codes import standard_code
from nmt.extensions.serve.glossaries import (
    MAX_TERM_BYTES,
    Dictionary,
    GlossaryStore,
    StoredGlossary,
    owner_of,
    read_entries,
    terms_of,
)
from nmt.extensions.serve.models import in_thread
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.glossary import Glossary
from nmt.runs import find_model

MAX_PER_REQUEST: Final = 5  # glossaries that a translation may use
MAX_DICTIONARIES: Final = 1000  # per request
NUM_COMPILED: Final = 8  # glossaries that are ready for searches; each takes 450 bytes per term
TSV: Final = "text/tab-separated-values"
FORM_NAME: Final = re.compile(r"dictionaries\[(\d{1,4})\]\.(\w+)")  # how deepl-node writes a list in a form
DEEPL_CODES: Final = {"no": "nb", "fil": "tl"}  # where DeepL's code of a language differs from the standard one
CREATED: Final = 201
Handlers = Mapping[str, Callable[[Call], Any]]


class GlossaryCalls:
    """The handlers of the calls, and the glossary of a translation."""

    def __init__(self, service: Service, folder: str | None) -> None:
        """folder: None keeps the glossaries in memory. Raises UserError."""
        self._service = service
        self._store = GlossaryStore(Path(folder) if folder is not None else None)

    @property
    def handlers(self) -> Mapping[str, Handlers]:
        """The handlers by path and method."""
        return {
            "/v2/glossary-language-pairs": {"GET": self.pairs},
            "/v2/glossaries": {"GET": self.listed_v2, "POST": self.create_v2},
            "/v2/glossaries/{glossary_id}": {"GET": self.details_v2, "DELETE": self.delete},
            "/v2/glossaries/{glossary_id}/entries": {"GET": self.entries_v2},
            "/v3/glossaries": {"GET": self.listed, "POST": self.create},
            "/v3/glossaries/{glossary_id}": {"GET": self.details, "PATCH": self.edit, "DELETE": self.delete},
            "/v3/glossaries/{glossary_id}/entries": {"GET": self.entries},
            "/v3/glossaries/{glossary_id}/dictionaries": {"PUT": self.replace, "DELETE": self.delete_dictionary},
        }

    async def chosen(self, call: Call, source: str | None, target: str | None) -> Glossary | None:
        """The glossary that a translation asks for; None if it asks for none."""
        fields = await call.fields()
        chosen = listed_values(fields, "glossary_ids") or listed_values(fields, "glossary_id")
        if not chosen:
            return None
        if fields.get("glossary_ids") and fields.get("glossary_id"):
            raise ProblemError(400, "'glossary_id' and 'glossary_ids' cannot be combined.")
        if source is None or target is None:
            raise ProblemError(400, "Value for 'source_lang' not supported: it is needed with a glossary.")
        if len(chosen) > MAX_PER_REQUEST:
            raise ProblemError(400, f"Value for 'glossary_ids' not supported: at most {MAX_PER_REQUEST} glossaries.")
        owner = await self.owner(call)

        def merged() -> Glossary | None:
            glossaries = [self._store.get(owner, glossary_id) for glossary_id in chosen]
            found = [row for glossary in glossaries if (row := glossary.dictionary(source, target))]
            return _compiled(tuple(row.entries for row in found)) if found else None

        if (glossary := await in_thread(merged)) is None:
            raise ProblemError(400, "The glossary has no dictionary for this 'source_lang' and 'target_lang'.")
        return glossary

    async def pairs(self, _: Call) -> dict[str, Any]:
        pairs = [{"source_lang": source, "target_lang": target} for source, target in self.directions()]
        return {"supported_languages": pairs}

    def directions(self) -> list[tuple[str, str]]:
        """The directions of the models whose search supports phrases, without regions."""
        if not (phrase_decoders() and has_torch()):
            return []
        every = self._service.models.by_name.values()
        models = [model for model in every if kind_of_folder(find_model(model.path)) in MODEL_KINDS]
        return list(dict.fromkeys((base_code(model.source_lang), base_code(model.target_lang)) for model in models))

    async def listed_v2(self, call: Call) -> dict[str, Any]:
        found = await self._in_store(call, self._store.of_owner)
        return {"glossaries": [_row_v2(glossary) for glossary in found if len(glossary.dictionaries) == 1]}

    async def create_v2(self, call: Call) -> Response:
        fields = await call.fields()
        name = _name(fields)
        new = await in_thread(partial(self._dictionary, fields))
        glossary = await self._in_store(call, self._store.create, name, [new])
        return json_response(_row_v2(glossary), CREATED)

    async def details_v2(self, call: Call) -> dict[str, Any]:
        return _row_v2(await self._one(call))

    async def entries_v2(self, call: Call) -> Response:
        return Response(_only_dictionary(await self._one(call)).entries, media_type=TSV)

    async def listed(self, call: Call) -> dict[str, Any]:
        return {"glossaries": list(map(_row, await self._in_store(call, self._store.of_owner)))}

    async def create(self, call: Call) -> Response:
        fields = await call.fields()
        name = _name(fields)
        if not (dictionaries := await in_thread(partial(self._dictionaries, fields))):
            raise ProblemError(400, "Value for 'dictionaries' not supported: there are none.")
        if any(one.is_for(other.source_lang, other.target_lang) for one, other in combinations(dictionaries, 2)):
            raise ProblemError(400, "Value for 'dictionaries' not supported: two are for the same languages.")
        return json_response(_row(await self._in_store(call, self._store.create, name, dictionaries)), CREATED)

    async def details(self, call: Call) -> dict[str, Any]:
        return _row(await self._one(call))

    async def edit(self, call: Call) -> dict[str, Any]:
        fields = await call.fields()
        name = _name(fields) if fields.get("name") is not None else None
        dictionaries = await in_thread(partial(self._dictionaries, fields))
        glossary_id = call.path["glossary_id"]
        return _row(await self._in_store(call, self._store.edit, glossary_id, name, dictionaries))

    async def entries(self, call: Call) -> dict[str, Any]:
        dictionary = _dictionary_of(await self._one(call), *_languages(await call.fields()))
        return {"dictionaries": [{**_languages_of(dictionary), "entries": dictionary.entries, "entries_format": "tsv"}]}

    async def replace(self, call: Call) -> dict[str, Any]:
        new = await in_thread(partial(self._dictionary, await call.fields()))
        await self._in_store(call, self._store.put_dictionary, call.path["glossary_id"], new)
        return _counts(new)

    async def delete_dictionary(self, call: Call) -> Response:
        languages = _languages(await call.fields())
        await self._in_store(call, self._store.drop_dictionary, call.path["glossary_id"], *languages)
        return Response(status_code=204)

    async def delete(self, call: Call) -> Response:
        await self._in_store(call, self._store.delete, call.path["glossary_id"])
        return Response(status_code=204)

    async def _one(self, call: Call) -> StoredGlossary:
        found: StoredGlossary = await self._in_store(call, self._store.get, call.path["glossary_id"])
        return found

    async def _in_store(self, call: Call, work: Callable[..., Any], *arguments: Any) -> Any:
        """Let the store do something for the client, in a thread because it reads and writes files."""
        return await in_thread(partial(work, await self.owner(call), *arguments))

    async def owner(self, call: Call) -> str:
        """Each key has its own glossaries; without --keys, all clients share them."""
        return owner_of(call.key(await call.fields())) if self._service.options.keys is not None else ""

    def _dictionary(self, fields: Fields) -> Dictionary:
        source, target = map(base_code, _languages(fields))
        entries, format = fields.get("entries"), fields.get("entries_format", "tsv")
        if not isinstance(entries, str) or not isinstance(format, str):
            raise ProblemError(400, "Value for 'entries' not supported.")
        new = Dictionary(source, target, 0, "").with_terms(read_entries(entries, format.lower()))
        pairs = self.directions()
        if not any(new.is_for(*pair) for pair in pairs):
            known = ", ".join("-".join(pair) for pair in pairs) or "none"
            raise ProblemError(400, f"Unsupported glossary language pair {source}-{target} (supported: {known}).")
        return new

    def _dictionaries(self, fields: Fields) -> list[Dictionary]:
        """The dictionaries in a request, from JSON or from form fields such as `dictionaries[0].entries`."""
        given = fields.get("dictionaries")
        if given is None:
            rows: dict[int, Fields] = {}
            for name, value in fields.items():
                if found := FORM_NAME.fullmatch(name):
                    rows.setdefault(int(found[1]), {})[found[2]] = value
            given = [rows[number] for number in sorted(rows)]
        if not isinstance(given, list) or len(given) > MAX_DICTIONARIES:
            raise ProblemError(400, "Value for 'dictionaries' not supported.")
        if not all(isinstance(row, dict) for row in given):
            raise ProblemError(400, "Value for 'dictionaries' not supported.")
        return list(map(self._dictionary, given))


def base_code(code: str) -> str:
    """DeepL's code of a language without region and script, in lower case: `en` for `EN-GB`."""
    base = standard_code(code).partition("-")[0].lower()
    return DEEPL_CODES.get(base, base)


@lru_cache(NUM_COMPILED)
def _compiled(entries: tuple[str, ...]) -> Glossary:
    """A glossary ready for searches. It is kept, because a client sends many requests with the same glossary.

    entries: of several glossaries; the first one that contains a term decides
    """
    return Glossary({term: translation for text in reversed(entries) for term, translation in terms_of(text).items()})


def listed_values(fields: Fields, name: str) -> list[str]:
    """The values of a field that is a list or a comma-separated text. Raises ProblemError."""
    given = fields.get(name) or []
    given = given if isinstance(given, list) else [given]
    if not all(isinstance(value, str) for value in given):
        raise ProblemError(400, f"Value for '{name}' not supported.")
    return [one.strip() for value in given for one in value.split(",") if one.strip()]


def _name(fields: Fields) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or not name.strip() or len(name.encode(errors="replace")) > MAX_TERM_BYTES:
        raise ProblemError(400, "Value for 'name' not supported.")
    return name


def _languages(fields: Fields) -> tuple[str, str]:
    return _code(fields, "source_lang"), _code(fields, "target_lang")


def _code(fields: Fields, name: str) -> str:
    if not isinstance(code := fields.get(name), str) or not code:
        raise ProblemError(400, f"Value for '{name}' not supported.")
    return code


def _only_dictionary(glossary: StoredGlossary) -> Dictionary:
    """The dictionary of a glossary that version 2 can describe. Raises ProblemError."""
    if len(glossary.dictionaries) != 1:
        raise ProblemError(400, "The glossary is multilingual: use /v3/glossaries.")
    return glossary.dictionaries[0]


def _dictionary_of(glossary: StoredGlossary, source: str, target: str) -> Dictionary:
    if (found := glossary.dictionary(source, target)) is None:
        raise ProblemError(404, "The glossary has no dictionary for these languages.")
    return found


def _row_v2(glossary: StoredGlossary) -> dict[str, Any]:
    counts = _counts(_only_dictionary(glossary))
    named = {"glossary_id": glossary.glossary_id, "name": glossary.name, "ready": True}
    return {**named, **counts, "creation_time": glossary.creation_time}


def _row(glossary: StoredGlossary) -> dict[str, Any]:
    dictionaries = list(map(_counts, glossary.dictionaries))
    named = {"glossary_id": glossary.glossary_id, "name": glossary.name, "dictionaries": dictionaries}
    return {**named, "creation_time": glossary.creation_time}


def _counts(dictionary: Dictionary) -> dict[str, Any]:
    return {**_languages_of(dictionary), "entry_count": dictionary.entry_count}


def _languages_of(dictionary: Dictionary) -> dict[str, str]:
    return {"source_lang": dictionary.source_lang, "target_lang": dictionary.target_lang}
