"""The toy language: its grammar against sentences written by hand, and what its generator promises."""

import importlib
import re
import subprocess
import sys
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

TOY = Path(__file__).parents[2] / "recipes" / "toy"

sys.path.insert(0, str(TOY))  # the recipe's modules are scripts and no package
lexicon, meaning, generate, words = map(importlib.import_module, ("lexicon", "meaning", "generate", "words"))
sys.path.remove(str(TOY))

Clause, Phrase, Sentence = meaning.Clause, meaning.Phrase, meaning.Sentence
TIMES = {row[0]: row for row in lexicon.NOW + lexicon.LATER + lexicon.BEFORE}
PLACES = {row[0]: row for row in lexicon.PLACES}
PRONOUNS = {pronoun.en[0]: pronoun for pronoun in lexicon.PRONOUNS}
VERBS = {f"{verb.en[0]} {verb.en_preposition}".strip(): verb for verb in lexicon.SPEECH + lexicon.VERBS}
ADJECTIVES = {adjective.en: adjective for adjective in lexicon.ADJECTIVES}
NOUNS = {form: (noun, i) for noun in lexicon.NOUNS for i, form in reversed([*enumerate(noun.en)])}
NAMES = {name.en[0]: name for name in lexicon.NAMES}


def who(words: str, relative: Any = None) -> Any:
    """A participant, as "she", "Anna", "the old dog", or "a dogs", which is how the plural of "a dog" is written here."""
    if words in PRONOUNS:
        return PRONOUNS[words]
    if words in NAMES:
        return meaning.NounPhrase(NAMES[words], "name")
    determiner, *adjective, noun = words.split()
    word, plural = NOUNS[noun]
    return meaning.NounPhrase(word, determiner, bool(plural), ADJECTIVES[adjective[0]] if adjective else None, relative)


def clause(subject: Any, verb: str, thing: str | None = None, **more: Any) -> Any:
    """A clause of the verb in its infinitive, or of an adjective."""
    time, front = more.pop("time", None), more.pop("front", False)
    subject = who(subject) if isinstance(subject, str) else subject
    return Clause(subject, phrase(verb, thing, **more), TIMES[time] if time else None, front)


def phrase(verb: str, thing: str | None = None, to: str | None = None, place: str | None = None, **more: Any) -> Any:
    if verb in ADJECTIVES:
        return Phrase(None, adjective=ADJECTIVES[verb], **more)
    more["recipient"] = who(to) if to else None
    more["place"] = PLACES[place] if place else None
    return Phrase(VERBS[verb], thing=who(thing) if thing else None, **more)


def simple(*args: Any, **more: Any) -> Any:
    return Sentence("simple", clause(*args, **more))


PAST, NOT, WANT, CAN = {"mode": "past"}, {"negated": True}, {"mode": "want"}, {"mode": "can"}
BY_HAND: list[tuple[Any, str, str, str]] = [
    (
        simple("the man", "call", "the woman"),  # separable verb, main clause
        "The man calls the woman.",
        "Der Mann ruft die Frau an.",
        "L'homme appelle la femme.",
    ),
    (
        Sentence("because", clause("Paul", "sing"), clause("she", "open", "the window", **NOT)),  # ... verb last
        "Paul sings because she does not open the window.",
        "Paul singt, weil sie das Fenster nicht aufmacht.",
        "Paul chante parce qu'elle n'ouvre pas la fenêtre.",
    ),
    (
        simple("a nurse", "invite", "the boy", **PAST),  # perfect of a separable verb; a weak noun
        "A nurse invited the boy.",
        "Eine Krankenschwester hat den Jungen eingeladen.",
        "Une infirmière a invité le garçon.",
    ),
    (
        simple("she", "arrive", **PAST),  # perfect with sein and être, agreement with the subject
        "She arrived.",
        "Sie ist angekommen.",
        "Elle est arrivée.",
    ),
    (
        simple("I", "see", "she", time="yesterday", front=True, **PAST),  # inversion; agreement with "la"; elision
        "Yesterday I saw her.",
        "Gestern habe ich sie gesehen.",
        "Hier, je l'ai vue.",
    ),
    (
        simple("you", "look at", "they", **NOT),  # pronouns before the French verb
        "You do not look at them.",
        "Du siehst sie nicht an.",
        "Tu ne les regardes pas.",
    ),
    (
        simple("we", "buy", "a black horses", **NOT),  # kein and "pas de"; an adjective after and before its noun
        "We do not buy black horses.",
        "Wir kaufen keine schwarzen Pferde.",
        "Nous n'achetons pas de chevaux noirs.",
    ),
    (
        simple("the teacher", "find", "a key", time="yesterday", **PAST, **NOT),
        "The teacher did not find a key yesterday.",
        "Der Lehrer hat gestern keinen Schlüssel gefunden.",
        "Le professeur n'a pas trouvé de clé hier.",
    ),
    (
        simple("he", "give", "a old hat", to="my uncle"),  # dative, accusative; mixed endings
        "He gives my uncle an old hat.",
        "Er gibt meinem Onkel einen alten Hut.",
        "Il donne un vieux chapeau à mon oncle.",
    ),
    (
        simple("my uncle", "give", "this beautiful flowers", to="he", time="tomorrow", front=True, **WANT),
        "Tomorrow my uncle wants to give him these beautiful flowers.",
        "Morgen will mein Onkel ihm diese schönen Blumen geben.",
        "Demain, mon oncle veut lui donner ces belles fleurs.",
    ),
    (
        simple("the doctor", "send", "the soup", to="the children", **PAST),  # dative plural; à + les
        "The doctor sent the children the soup.",
        "Der Arzt hat den Kindern die Suppe geschickt.",
        "Le médecin a envoyé la soupe aux enfants.",
    ),
    (
        simple("five birds", "follow", "a young cat"),  # an object in the dative; the plural of -eau
        "Five birds follow a young cat.",
        "Fünf Vögel folgen einer jungen Katze.",
        "Cinq oiseaux suivent un jeune chat.",
    ),
    (
        simple("the girls", "talk about", "the old uncle"),  # de + le; vieil
        "The girls talk about the old uncle.",
        "Die Mädchen sprechen über den alten Onkel.",
        "Les filles parlent du vieil oncle.",
    ),
    (
        simple("the girls", "talk about", "the uncle"),  # no contraction before a vowel
        "The girls talk about the uncle.",
        "Die Mädchen sprechen über den Onkel.",
        "Les filles parlent de l'oncle.",
    ),
    (
        simple("Anna", "talk about", "a big cakes", **NOT),  # nicht before a preposition; de + des
        "Anna does not talk about big cakes.",
        "Anna spricht nicht über große Kuchen.",
        "Anna ne parle pas de grands gâteaux.",
    ),
    (
        simple("this uncle", "think of", "the dogs", time="now", **CAN),  # cet; a modal's infinitive last
        "This uncle can think of the dogs now.",
        "Dieser Onkel kann jetzt an die Hunde denken.",
        "Cet oncle peut penser aux chiens maintenant.",
    ),
    (
        simple("the dog", "play", place="in the garden", time="last week", **PAST, **NOT),
        "The dog did not play in the garden last week.",
        "Der Hund hat letzte Woche nicht im Garten gespielt.",
        "Le chien n'a pas joué la semaine dernière dans le jardin.",
    ),
    (
        simple("her lamps", "expensive", **PAST, **NOT),  # "to be"; the adjective agrees in French only
        "Her lamps were not expensive.",
        "Ihre Lampen waren nicht teuer.",
        "Ses lampes n'étaient pas chères.",
    ),
    (
        simple(who("the woman", phrase("help", "a horse", **PAST)), "sleep", time="now", front=True),  # relative clause
        "Now the woman who helped a horse sleeps.",
        "Jetzt schläft die Frau, die einem Pferd geholfen hat.",
        "Maintenant, la femme qui a aidé un cheval dort.",
    ),
    (
        Sentence("if", clause("they", "laugh"), clause("you", "come back", time="today")),
        "If they laugh, you come back today.",
        "Wenn sie lachen, kommst du heute zurück.",
        "S'ils rient, tu reviens aujourd'hui.",
    ),
    (
        Sentence("when", clause("my girl", "leave", **PAST), clause("the queens", "call", "we", **PAST)),
        "When my girl left, the queens called us.",
        "Als mein Mädchen weggegangen ist, haben die Königinnen uns angerufen.",
        "Quand ma fille est partie, les reines nous ont appelés.",
    ),
    (
        Sentence("that", clause("I", "believe"), clause("Anna", "close", "his red suitcase", **CAN, **NOT)),
        "I believe that Anna cannot close his red suitcase.",
        "Ich glaube, dass Anna seinen roten Koffer nicht zumachen kann.",
        "Je crois qu'Anna ne peut pas fermer sa valise rouge.",
    ),
    (
        Sentence("but", clause("the egg", "cold"), clause("six tired men", "eat", "a good soup", time="this evening")),
        "The egg is cold, but six tired men eat a good soup this evening.",
        "Das Ei ist kalt, aber sechs müde Männer essen heute Abend eine gute Suppe.",
        "L'œuf est froid, mais six hommes fatigués mangent une bonne soupe ce soir.",
    ),
]


def translation(sentence: Any, language: str) -> str:
    text: str = generate.text(generate.LANGUAGES[language](sentence))
    return text


@pytest.mark.parametrize(("sentence", "en", "de", "fr"), BY_HAND, ids=[row[1] for row in BY_HAND])
def test_a_meaning_is_expressed_as_a_person_would_write_it(sentence: Any, en: str, de: str, fr: str) -> None:
    assert (translation(sentence, "en"), translation(sentence, "de"), translation(sentence, "fr")) == (en, de, fr)


ALIGNED = {  # English with the numbers of the German words; those in brackets are only possible
    "The man calls the woman.": "0 1 2,5 3 4",
    "Paul sings because she does not open the window.": "0 1 2 3 (7) 6 7 4 5",
    "A nurse invited the boy.": "0 1 5(2) 3 4",
    "Yesterday I saw her.": "0 2 4(1) 3",
    "We do not buy black horses.": "0 (1) 2 1 3 4",
    "Tomorrow my uncle wants to give him these beautiful flowers.": "0 2 3 1 (8) 8 4 5 6 7",
    "The girls talk about the old uncle.": "0 1 2(3) 3(2) 4 5 6",
    "This uncle can think of the dogs now.": "0 1 2 7(4) 4(7) 5 6 3",
    "The dog did not play in the garden last week.": "0 1 2(8) 5 8(2) 6 6 7 3 4",
    "Now the woman who helped a horse sleeps.": "0 2 3 4 7(8) 5 6 1",
    "I believe that Anna cannot close his red suitcase.": "0 1 2 3 7,9 8 4 5 6",
}


@pytest.mark.parametrize("english", ALIGNED)
def test_words_are_aligned_as_a_person_would_align_them(english: str) -> None:
    [sentence] = [row[0] for row in BY_HAND if row[1] == english]
    sure, possible = words.links(*(generate.LANGUAGES[language](sentence) for language in ("en", "de")))
    words_of_line = ALIGNED[english].split()
    assert len(words_of_line) == len(english.split())
    beyond = {
        (i, int(j)) for i, word in enumerate(words_of_line) for j in re.findall(r"\d+", re.sub(r"\(.*\)", "", word))
    }
    assert sure == beyond
    assert possible == beyond | {
        (i, int(j)) for i, word in enumerate(words_of_line) for j in re.findall(r"\((\d+)\)", word)
    }


DECLENSION = {  # article and adjective from any grammar: man, woman, child, women
    "the": {
        "nom": "der -e, die -e, das -e, die -en",
        "acc": "den -en, die -e, das -e, die -en",
        "dat": "dem -en, der -en, dem -en, den -en",
    },
    "this": {
        "nom": "dieser -e, diese -e, dieses -e, diese -en",
        "acc": "diesen -en, diese -e, dieses -e, diese -en",
        "dat": "diesem -en, dieser -en, diesem -en, diesen -en",
    },
    "my": {
        "nom": "mein -er, meine -e, mein -es, meine -en",
        "acc": "meinen -en, meine -e, mein -es, meine -en",
        "dat": "meinem -en, meiner -en, meinem -en, meinen -en",
    },
    "a": {
        "nom": "ein -er, eine -e, ein -es, -e",
        "acc": "einen -en, eine -e, ein -es, -e",
        "dat": "einem -en, einer -en, einem -en, -en",
    },
}


@pytest.mark.parametrize("determiner", DECLENSION)
@pytest.mark.parametrize("case", ["nom", "acc", "dat"])
def test_german_articles_and_adjectives_follow_gender_number_and_case(determiner: str, case: str) -> None:
    nouns = {"man": "Mann", "woman": "Frau", "child": "Kind", "women": "Frauen"}
    for (noun, german), forms in zip(nouns.items(), DECLENSION[determiner][case].split(", "), strict=True):
        words = f"{determiner} happy {noun}"
        sentence = {
            "nom": simple(words, "sleep"),
            "acc": simple("Paul", "see", words),
            "dat": simple("Paul", "help", words),
        }[case]
        wanted = f"{forms.replace('-', 'glücklich')} {german}"
        assert re.search(rf"(^|[ ]){wanted}( |\.)", translation(sentence, "de"), re.IGNORECASE), translation(
            sentence, "de"
        )


@pytest.mark.parametrize("verb", [name for name, verb in VERBS.items() if not verb.en_preposition])
def test_english_and_french_verbs_agree_with_their_subject(verb: str) -> None:
    by_person = [
        translation(simple(person, verb), "en").split()[1].rstrip(".") for person in ("I", "you", "we", "they")
    ]
    assert len(set(by_person)) == 1
    assert translation(simple("he", verb), "en").split()[1].rstrip(".").endswith("s")
    french = [
        re.split(r"[ ']", translation(simple(person, verb), "fr").rstrip("."), maxsplit=1)[1] for person in PRONOUNS
    ]
    i, you, he, she, we, they = french
    assert he == she and you.endswith(("s", "x")) and we.endswith("ons") and they.endswith("nt")
    assert i in (you, you[:-1])


def test_separable_verbs_split_only_in_main_clauses() -> None:
    separable = [verb for verb in lexicon.VERBS if verb.de_particle]
    assert len(separable) >= 8
    for verb in separable:
        name = f"{verb.en[0]} {verb.en_preposition}".strip()
        main, subordinate = clause("Paul", name), Sentence("that", clause("I", "say"), clause("Paul", name))
        he_form, particle = verb.de[2], verb.de_particle
        assert translation(Sentence("simple", main), "de") == f"Paul {he_form} {particle}."
        assert translation(subordinate, "de") == f"Ich sage, dass Paul {particle}{he_form}."


@pytest.fixture(scope="module")
def sample() -> list[Any]:
    rng = Random(7)
    return [meaning.draw(rng) for _ in range(20_000)]


def test_an_english_sentence_has_one_translation(sample: list[Any]) -> None:
    translations: dict[str, tuple[str, str]] = {}
    for sentence in sample:
        translated = (translation(sentence, "de"), translation(sentence, "fr"))
        assert translations.setdefault(translation(sentence, "en"), translated) == translated


def test_every_content_word_is_aligned_within_the_sentence(sample: list[Any]) -> None:
    for sentence in sample[:2000]:
        sides = [generate.LANGUAGES[language](sentence) for language in ("en", "de")]
        sure, possible = words.links(*sides)
        lengths = [len(generate.text(side).split()) for side in sides]
        assert sure <= possible and all(i < lengths[0] and j < lengths[1] for i, j in possible)
        assert {j for _, j in possible} >= {
            j for j, word in enumerate(generate.text(sides[1]).split()) if word[0].isupper()
        }


def test_sentences_have_capitals_and_final_punctuation(sample: list[Any]) -> None:
    for language, letters in (("en", "a-z"), ("de", "a-zäöüß"), ("fr", "a-zàâçéèêîôœ")):
        form = re.compile(rf"[{letters}A-ZÄÖÜ]['{letters}A-ZÄÖÜ]*(,? ['{letters}A-ZÄÖÜ]+)*\.")
        for sentence in sample:
            text = translation(sentence, language)
            assert form.fullmatch(text), text


def test_french_elides_and_contracts_wherever_it_must(sample: list[Any]) -> None:
    vowels = "aeiouhéèêàâîôœ"  # no word here has an aspirated h
    elided = re.compile(rf"\b(je|me|te|le|la|ne|de|que|ce|ma|ta|sa) [{vowels}]", re.IGNORECASE)
    contracted = re.compile(r"\b(à|de) (le|les) ", re.IGNORECASE)
    for sentence in sample:
        text = translation(sentence, "fr")
        assert not elided.search(text) and not contracted.search(text), text


def test_the_grammar_is_too_large_to_memorise() -> None:
    def noun_phrases(kinds: set[str]) -> set[str]:
        determiners = ["the", "a", "this", *lexicon.POSSESSIVES]
        found = set()
        for noun, determiner in product((n for n in lexicon.NOUNS if n.kind in kinds), determiners):
            fitting = [adjective for adjective in lexicon.ADJECTIVES if noun.kind in adjective.kinds]
            for plural, adjective in product((False, True), [None, *fitting]):
                found.add(translation(simple(meaning.NounPhrase(noun, determiner, plural, adjective), "sleep"), "en"))
        return found

    people, things = len(noun_phrases({"adult", "child"})), len(noun_phrases({"thing"}))
    verbs = [verb for verb in lexicon.VERBS if "adult" in verb.subjects and "thing" in verb.objects]
    clauses = people * things * len(verbs)  # "PEOPLE VERB THINGS."
    assert clauses > 10_000_000
    assert clauses**2 > 10**14  # "PEOPLE VERB THINGS, but PEOPLE VERB THINGS."


def test_no_test_sentence_is_in_training_whatever_the_seed(tmp_path: Path) -> None:
    for seed in (1, 2):
        generate.write("de", {"train": 3000, "valid": 100, "test": 100}, seed, tmp_path / str(seed))
    lines = {
        split: [line for seed in "12" for line in (tmp_path / seed / f"{split}.en").read_text().splitlines()]
        for split in ("train", "valid", "test")
    }
    assert {split: len(found) for split, found in lines.items()} == {"train": 6000, "valid": 200, "test": 200}
    sets = [set(found) for found in lines.values()]
    assert not (sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2])


def test_sentences_are_distinct_and_a_function_of_the_seed() -> None:
    first = list(islice(generate.pairs("fr", 3), 5000))
    assert len({source for source, _ in first}) == 5000
    assert first == list(islice(generate.pairs("fr", 3), 5000))
    assert first[:50] != list(islice(generate.pairs("fr", 4), 50))


def test_the_command_writes_the_same_files_under_any_hash_seed(tmp_path: Path) -> None:
    for hash_seed in ("0", "1"):
        sizes = ["--train", "50", "--valid", "5", "--test", "5"]
        subprocess.run(
            [sys.executable, TOY / "generate.py", "--target-lang", "fr", *sizes, "--output", tmp_path / hash_seed],
            check=True,
            env={"PYTHONHASHSEED": hash_seed},
        )
    for split, language in product(("train", "valid", "test"), ("en", "fr")):
        name = f"{split}.{language}"
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()
