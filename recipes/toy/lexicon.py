"""The lexicon of the toy task: each word with its irregular forms in three languages.

Kinds of nouns restrict subjects and objects: people open doors, and eat no chairs. Words with ambiguous English
forms ("read", past or present) are omitted, so that a sentence has one meaning and one translation.
"""

from dataclasses import dataclass
from typing import Final

KINDS: Final = {
    "person": ("adult", "child"),
    "being": ("adult", "child", "animal"),
    "goods": ("food", "thing", "box"),
    "any": ("adult", "child", "animal", "food", "thing", "box"),
}


@dataclass(frozen=True)
class Noun:
    kind: str
    en: tuple[str, str]  # singular, plural
    de: tuple[str, str, str]  # singular; singular of the other cases; plural
    de_gender: str  # m, f or n
    fr: tuple[str, str]
    fr_gender: str


@dataclass(frozen=True)
class Pronoun:
    en: tuple[str, str]  # subject, object
    de: dict[str, str]  # by case
    fr: dict[str, str]  # subject, direct object, indirect object, after a preposition
    person: int  # 0 I, 1 you, 2 he and she, 3 we, 4 they: the columns of a verb's forms
    fr_gender: str


@dataclass(frozen=True)
class Adjective:
    kinds: tuple[str, ...]
    en: str
    de: tuple[str, str]  # the stem before endings; the form after "to be"
    fr: tuple[str, str, str]  # masculine, feminine, masculine before a vowel
    fr_before: bool  # whether it precedes the noun


@dataclass(frozen=True)
class Verb:
    en: tuple[str, str, str]  # see, sees, saw
    en_preposition: str
    de: tuple[str, str, str, str]  # infinitive, du, er, participle; without the particle
    de_particle: str  # the particle of a separable verb: an|rufen
    de_object: str  # acc, dat, or a preposition that takes the accusative
    de_sein: bool  # perfect with sein
    fr: tuple[str, ...]  # infinitive; je, tu, il, nous, ils; participle
    fr_object: str  # direct; à (lui); à-lui (à lui); de
    fr_etre: bool  # perfect with être
    subjects: tuple[str, ...]
    objects: tuple[str, ...]  # empty: intransitive
    more: str  # a further phrase that may follow: place, recipient or none


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _kinds(names: str) -> tuple[str, ...]:
    return tuple(kind for name in names.split() for kind in KINDS.get(name, (name,)))


def _noun(row: list[str]) -> Noun:
    kind, en, de, fr = row[0], row[1].split(), row[2].split(), row[3].split()
    singular, _, oblique = de[0].partition("/")
    return Noun(kind, (en[0], en[1]), (singular, oblique or singular, de[1]), de[2], (fr[0], fr[1]), fr[2])


def _pronoun(person: int, row: list[str]) -> Pronoun:
    en, de, fr = row[0].split(), row[1].split(), row[2].split()
    french = dict(zip(("subject", "direct", "à", "strong"), fr, strict=True))
    return Pronoun((en[0], en[1]), dict(zip(("nom", "acc", "dat"), de, strict=True)), french, person, row[3])


def _adjective(row: list[str]) -> Adjective:
    de, fr = row[2].split(), row[3].split()
    vowel = fr[2] if len(fr) == 4 else fr[0]
    return Adjective(_kinds(row[0]), row[1], (de[0], de[-1]), (fr[0], fr[1], vowel), fr[-1] == "before")


def _verb(row: list[str]) -> Verb:
    en, de, fr = row[0].split(), row[1].split(), row[2].split()
    third = en[0][:-1] + "ies" if en[0] == "carry" else en[0] + "s"
    particle, _, infinitive = de[0].rpartition("+")
    stem = de[1][:-1]
    marks = [mark for mark in fr if mark in ("être", "à", "à-lui", "de")]
    forms = fr[: len(fr) - len(marks)]
    if len(forms) == 1:  # regular: chanter
        forms += [forms[0][:-2] + ending for ending in ("e", "e", "ons", "ent", "é")]
    thou = forms[1] if forms[1][-1] in "sx" else forms[1] + "s"
    return Verb(
        (en[0], third, en[1]),
        " ".join(en[2:]),
        (infinitive, de[1] if stem[-1] in "sßz" else stem + "st", de[1], de[2]),
        particle,
        next((mark for mark in de[3:] if mark != "sein"), "acc"),
        "sein" in de[3:],
        (forms[0], forms[1], thou, *forms[2:]),
        next((mark for mark in marks if mark != "être"), "direct"),
        "être" in marks,
        _kinds(row[3]),
        _kinds(row[4]),
        row[5],
    )


PRONOUNS: Final = [
    _pronoun(person, row)
    for person, row in zip(
        (0, 1, 2, 2, 3, 4),
        _rows("""
I me     | ich mich mir    | je me me moi         | m
you you  | du dich dir     | tu te te toi         | m
he him   | er ihn ihm      | il le lui lui        | m
she her  | sie sie ihr     | elle la lui elle     | f
we us    | wir uns uns     | nous nous nous nous  | m
they them| sie sie ihnen   | ils les leur eux     | m
"""),
        strict=True,
    )
]

NAMES: Final = [
    Noun("adult", (name, name), (name, name, name), gender, (name, name), gender)
    for name, gender in (("Anna", "f"), ("Emma", "f"), ("Paul", "m"), ("Oskar", "m"))
]

NOUNS: Final = [
    _noun(row)
    for row in _rows("""
adult  | man men               | Mann Männer m                        | homme hommes m
adult  | woman women           | Frau Frauen f                        | femme femmes f
adult  | teacher teachers      | Lehrer Lehrer m                      | professeur professeurs m
adult  | doctor doctors        | Arzt Ärzte m                         | médecin médecins m
adult  | neighbour neighbours  | Nachbar/Nachbarn Nachbarn m          | voisin voisins m
adult  | uncle uncles          | Onkel Onkel m                        | oncle oncles m
adult  | queen queens          | Königin Königinnen f                 | reine reines f
adult  | nurse nurses          | Krankenschwester Krankenschwestern f | infirmière infirmières f
child  | child children        | Kind Kinder n                        | enfant enfants m
child  | girl girls            | Mädchen Mädchen n                    | fille filles f
child  | boy boys              | Junge/Jungen Jungen m                | garçon garçons m
animal | dog dogs              | Hund Hunde m                         | chien chiens m
animal | cat cats              | Katze Katzen f                       | chat chats m
animal | horse horses          | Pferd Pferde n                       | cheval chevaux m
animal | bird birds            | Vogel Vögel m                        | oiseau oiseaux m
animal | cow cows              | Kuh Kühe f                           | vache vaches f
food   | apple apples          | Apfel Äpfel m                        | pomme pommes f
food   | cake cakes            | Kuchen Kuchen m                      | gâteau gâteaux m
food   | egg eggs              | Ei Eier n                            | œuf œufs m
food   | orange oranges        | Orange Orangen f                     | orange oranges f
food   | soup soups            | Suppe Suppen f                       | soupe soupes f
thing  | book books            | Buch Bücher n                        | livre livres m
thing  | letter letters        | Brief Briefe m                       | lettre lettres f
thing  | key keys              | Schlüssel Schlüssel m                | clé clés f
thing  | flower flowers        | Blume Blumen f                       | fleur fleurs f
thing  | picture pictures      | Bild Bilder n                        | tableau tableaux m
thing  | chair chairs          | Stuhl Stühle m                       | chaise chaises f
thing  | bag bags              | Tasche Taschen f                     | sac sacs m
thing  | lamp lamps            | Lampe Lampen f                       | lampe lampes f
thing  | hat hats              | Hut Hüte m                           | chapeau chapeaux m
thing  | shirt shirts          | Hemd Hemden n                        | chemise chemises f
thing  | car cars              | Auto Autos n                         | voiture voitures f
thing  | bicycle bicycles      | Fahrrad Fahrräder n                  | vélo vélos m
box    | door doors            | Tür Türen f                          | porte portes f
box    | window windows        | Fenster Fenster n                    | fenêtre fenêtres f
box    | suitcase suitcases    | Koffer Koffer m                      | valise valises f
""")
]

ADJECTIVES: Final = [
    _adjective(row)
    for row in _rows("""
adult animal thing box | old         | alt         | vieux vieille vieil before
being                  | young       | jung        | jeune jeune before
any                    | small       | klein       | petit petite before
animal goods           | big         | groß        | grand grande before
being thing            | beautiful   | schön       | beau belle bel before
food                   | good        | gut         | bon bonne before
being                  | tired       | müd müde    | fatigué fatiguée after
being                  | sad         | traurig     | triste triste after
being                  | happy       | glücklich   | heureux heureuse after
being                  | clever      | klug        | intelligent intelligente after
being                  | ill         | krank       | malade malade after
adult                  | rich        | reich       | riche riche after
food                   | cold        | kalt        | froid froide after
thing box              | red         | rot         | rouge rouge after
thing box              | green       | grün        | vert verte after
animal thing box       | white       | weiß        | blanc blanche after
animal thing box       | black       | schwarz     | noir noire after
goods                  | expensive   | teur teuer  | cher chère after
""")
]

# English: infinitive, past, preposition | German: infinitive (separable: an+rufen), er-form, participle, sein, case or
# preposition of the object | French: infinitive; je, il, nous, ils, participle if irregular; preposition; être |
# kinds of subjects | kinds of objects | a further phrase that may follow
VERBS: Final = [
    _verb(row)
    for row in _rows("""
see saw | sehen sieht gesehen | voir vois voit voyons voient vu | being | any | place
hear heard | hören hört gehört | entendre entends entend entendons entendent entendu | being | being | place
find found | finden findet gefunden | trouver | person | any | place
look looked for | suchen sucht gesucht | chercher | being | any | place
love loved | lieben liebt geliebt | aimer | being | being |
buy bought | kaufen kauft gekauft | acheter achète achète achetons achètent acheté | person | animal goods | place
sell sold | verkaufen verkauft verkauft | vendre vends vend vendons vendent vendu | person | animal goods | place
eat ate | essen isst gegessen | manger mange mange mangeons mangent mangé | being | food | place
paint painted | malen malt gemalt | peindre peins peint peignons peignent peint | person | any | place
carry carried | tragen trägt getragen | porter | person | child goods |
forget forgot | vergessen vergisst vergessen | oublier | person | any |
greet greeted | begrüßen begrüßt begrüßt | saluer | person | person | place
call called | an+rufen ruft gerufen | appeler appelle appelle appelons appellent appelé | person | person |
invite invited | ein+laden lädt geladen | inviter | person | person |
open opened | auf+machen macht gemacht | ouvrir ouvre ouvre ouvrons ouvrent ouvert | person | box |
close closed | zu+machen macht gemacht | fermer | person | box |
bring brought | mit+bringen bringt gebracht | apporter | person | goods |
look looked at | an+sehen sieht gesehen | regarder | being | any |
listen listened to | zu+hören hört gehört dat | écouter | being | being |
help helped | helfen hilft geholfen dat | aider | person | being | place
thank thanked | danken dankt gedankt dat | remercier | person | person |
follow followed | folgen folgt gefolgt sein dat | suivre suis suit suivons suivent suivi | being | being |
obey obeyed | gehorchen gehorcht gehorcht dat | obéir obéis obéit obéissons obéissent obéi à | being | person |
talk talked about | sprechen spricht gesprochen über | parler de | person | any |
wait waited for | warten wartet gewartet auf | attendre attends attend attendons attendent attendu | being | being |
think thought of | denken denkt gedacht an | penser à-lui | person | any |
give gave | geben gibt gegeben | donner | person | animal goods | recipient
show showed | zeigen zeigt gezeigt | montrer | person | animal goods | recipient
send sent | schicken schickt geschickt | envoyer envoie envoie envoyons envoient envoyé | person | thing | recipient
sleep slept | schlafen schläft geschlafen | dormir dors dort dormons dorment dormi | being || place
work worked | arbeiten arbeitet gearbeitet | travailler | person || place
play played | spielen spielt gespielt | jouer | being || place
dance danced | tanzen tanzt getanzt | danser | person || place
sing sang | singen singt gesungen | chanter | person || place
laugh laughed | lachen lacht gelacht | rire ris rit rions rient ri | person ||
arrive arrived | an+kommen kommt gekommen sein | arriver être | being ||
leave left | weg+gehen geht gegangen sein | partir pars part partons partent parti être | being ||
come came back | zurück+kommen kommt gekommen sein | revenir reviens revient revenons reviennent revenu être | being ||
""")
]

SPEECH: Final = [  # followed by a clause with "that"
    _verb(row)
    for row in _rows("""
say said | sagen sagt gesagt | dire dis dit disons disent dit | person ||
believe believed | glauben glaubt geglaubt | croire crois croit croyons croient cru | person ||
think thought | denken denkt gedacht | penser | person ||
""")
]

PLACES: Final = _rows("""
in the garden          | im Garten      | dans le jardin
in the kitchen         | in der Küche   | dans la cuisine
in the park            | im Park        | dans le parc
in the forest          | im Wald        | dans la forêt
in the street          | auf der Straße | dans la rue
in the city            | in der Stadt   | en ville
in front of the house  | vor dem Haus   | devant la maison
under the bridge       | unter der Brücke | sous le pont
at home                | zu Hause       | à la maison
at school              | in der Schule  | à l'école
at the station         | am Bahnhof     | à la gare
at the market          | auf dem Markt  | au marché
""")

NOW: Final = _rows("""
today         | heute         | aujourd'hui
now           | jetzt         | maintenant
this evening  | heute Abend   | ce soir
""")
LATER: Final = _rows("tomorrow | morgen | demain")
BEFORE: Final = _rows("""
yesterday     | gestern       | hier
this morning  | heute Morgen  | ce matin
last week     | letzte Woche  | la semaine dernière
last year     | letztes Jahr  | l'année dernière
""")

POSSESSIVES: Final = {"my": ("mein", "m"), "your": ("dein", "t"), "his": ("sein", "s"), "her": ("ihr", "s")}
NUMBERS: Final = {
    "two": ("zwei", "deux"),
    "three": ("drei", "trois"),
    "four": ("vier", "quatre"),
    "five": ("fünf", "cinq"),
    "six": ("sechs", "six"),
}
