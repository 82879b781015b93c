"""Abbreviations and common first words of sentences in many languages, used to find where sentences end.

Moses' lists (sacremoses) mainly contain titles. These lists add references, units, months, and abbreviations that may end a
sentence. A lower-case abbreviation also matches when capitalised. Entries include inner full stops, but not the last one.
"""

from functools import cache
from typing import Final, NamedTuple

from nmt.text.languages import base_language

NUMBER_FOLLOWS: Final = "#NUMERIC_ONLY#"  # in Moses' lists, marks an abbreviation that counts only before a number

# Abbreviations for languages in Latin script without a list below, and for most languages with one.
COMMON: Final = (
    "Dr dr Prof prof Mr Mrs Ms St Inc Ltd Co Corp Jr Sr vol fig tab cf ca approx max min vs ibid pp ff ed "
    "ing dipl univ incl Ph.D e.g i.e a.o"
)
COMMON_FINAL: Final = "etc a.m p.m"
# Languages that write `3rd` as `3.`, at least in the names of kings.
ORDINAL_LANGUAGES: Final = "bs cs da de dsb et eu fi fo hr hsb hu is lb lv nb nn no pl sk sl sr sv tr"
NOUN_CAPITAL_LANGUAGES: Final = "de lb"  # languages in which a capital after `3.` does not imply a new sentence
SYLLABIC_LANGUAGES: Final = "bs cs hr mk sk sl sr"  # languages in which words may have no vowels


class _Words(NamedTuple):
    """A language's abbreviations and starters, each field a list separated by spaces.

    inner: abbreviations that never end a sentence
    usual: abbreviations that end a sentence only if the next word is a starter
    numbers: like `usual`, but only before a number or a single letter; elsewhere they are ordinary words
    final: abbreviations that often end a sentence, if the next word has a capital
    starters: words that start a sentence if they have a capital
    """

    inner: str = ""
    usual: str = ""
    numbers: str = ""
    final: str = ""
    starters: str = ""


WORDS: Final = {
    "en": _Words(
        "e.g i.e cf viz approx incl excl esp resp et.al",
        "tel Assoc Acct Attn Wm Chas Geo Jas Thos Ste Apt Rm temp alt cont cit mil Q "
        "Ave Blvd Rd Hwy Pkwy Mt Ft Sq Bldg Dept dept est Esq Hon Pres Gov Sen Rep Lt Capt Col Gen Maj Sgt Cpl Rev Fr Bros "
        "Assn Univ Inst Intl Natl Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thurs Fri Sat Sun "
        "ext tbsp tsp oz lb lbs ft yd mph hr hrs min sec sq cu gal qt pt avg misc illus trans repr rev ser suppl vols chs "
        "c ca b d m fl r Ariz Calif Colo Conn Fla Ill Ind Kan Ky La Mass Md Mich Minn Mo Mont Neb Nev Okla Ore Pa Penn Tenn "
        "Tex Va Vt Wash Wis Wyo Ont Que Messrs Mme Mlle Msgr Supt Insp Cmdr Adm Atty Treas n.d a.k.a w.r.t",
        "no nos p pp pg pgs fig figs eq eqs eqn sec sect sects ch chap chaps vol art arts para paras par tab app ref refs ex "
        "def thm prop lem cor vers ver v bk pt pts cl col cols ll",
        "etc p.m a.m P.M A.M",
        "The A An He She It We They You I This That These Those There Here His Her Its Our Their My Your But And Or So Then "
        "When If In On At As By For From With After Before Because Since While Although Though However Now Not No "
        "Yes What Who "
        "Why How Where Which Is Are Was Were Do Does Did Has Have Had Can Could Will Would Should May Must Let "
        "Please All Some "
        "Many Most One Two Each Every Both Another Other Still Yet Also Only Even Just To Of Perhaps Maybe Later Today Once",
    ),
    "de": _Words(
        "z.B z.b d.h u.a i.d.R i.A i.V i.e S.d vgl bzw ca evtl ggf sog insb inkl exkl einschl zzgl bspw gem lt abzgl vmtl "
        "vorm ehem gez geb gest erb o.g s.o v.a m.E u.U z.T z.Z z.Zt d.i a.d i.S u.d s.a s.u o.a v.Chr n.Chr",
        "ggü mind bes zus ders dies öff wiss em ff Hr Fr Hrn Frl Hl hl Dipl Ing Mag "
        "Dir Stellv St Fa Mio Mrd Tsd Std Min Sek Mo Di Mi Do Fr Sa So Jan Feb Febr "
        "Apr Jun Jul "
        "Aug Sep Sept Okt Nov Dez Jh Jhd Jhdt Hrsg hrsg Verf Verl Aufl Ausg Anm Bem Red Übers übers Abt Bhf Hbf Pl Str str "
        "Tel tel max min durchschn jährl monatl tägl wöchentl Bez bez Kfm kath ev röm griech lat engl franz dt "
        "österr schweiz "
        "Univ Inst Ges Präs Reg Bgm Abg Min Obj Prod Mwst MwSt Akk Dat Gen Nom usf versch urspr allg dgl entspr gegr a.M a.D "
        "a.S a.Rh e.V h.c i.R Ph.D",
        "Nr nr Nrn S s Bd Bde Abb Abs Art Kap Kto Tab Abschn Ziff Ziffer Anh Anl Bl Sp Z Rn Rz Lit Pos Taf Hft H Fig "
        "Gl Aufg Bsp §",
        "usw etc u.s.w u.ä o.ä u.v.m u.dgl",
        "Der Die Das Den Dem Des Ein Eine Einen Einem Einer Er Sie Es Wir Ihr Ich Du Man Dies Dieser Diese Dieses "
        "Diesen Diesem "
        "Jener Jene Sein Seine Seinen Ihre Ihren Unser Unsere Mein Meine Kein Keine Dann Da Dort Hier Doch Aber Und "
        "Oder Denn "
        "Wenn Als Weil Ob Obwohl Während Nachdem Bevor Seit Im In Am An Auf Bei Mit Nach Von Vom Vor Zu Zum Zur Für "
        "Durch Über "
        "Unter Um Aus Bis Ohne Gegen Trotz Wegen Auch Nur Noch Schon Jetzt Nun Heute Gestern Morgen Später Danach "
        "Damit Dabei "
        "Daher Deshalb Trotzdem Jedoch Außerdem Was Wer Wie Wo Warum Wann Welche Ist Sind War Waren Hat Haben Hatte "
        "Kann Wird "
        "Werden Wurde Bitte Ja Nein Nicht Alle Alles Viele Einige Mehr So Sehr Jeder Jede Jedes",
    ),
    "fr": _Words(
        "cf c.-à-d c-à-d i.e p.ex env not notamm spéc incl av.J.-C apr.J.-C",
        "M MM Mme Mmes Mlle Mlles Me Mgr Dr Pr Prof prof gén col cap lt sgt boul bd bld av pl sq rte ch fg Cie Cies "
        "Sté Ets St Ste "
        "Sts janv févr fév avr juil sept oct nov déc lun ven tél max min moy éd éds coll trad sous-dir dir réf "
        "adj adv masc fém sing plur lat gr angl all esp ital hab env suiv inf sup dép arr cant auj É.-U E.-U U.S ap Jr Sr op "
        "loc cit univ fac inst dépt resp ing Éd Tél",
        "p pp n no nos nº art al fig figs vol vols chap tab t § éq sect ann v vv pl col ill fasc liv ex op",
        "etc",
        "Le La Les L' Un Une Des De Du D' Il Elle Ils Elles On Nous Vous Je Tu J' C' Ce Cet Cette Ces Ceci Cela Ça "
        "Son Sa Ses Leur "
        "Leurs Mon Ma Mes Notre Nos Votre Vos Mais Et Ou Donc Or Car Puis Ensuite Alors Quand Si S' Comme Lorsque "
        "Puisque Que Qui "
        "Quoi Où Pourquoi Comment Quel Quelle En Au Aux À A Dans Sur Sous Avec Sans Pour Par Après Avant Depuis "
        "Pendant Chez Ici "
        "Là Aujourd' Hier Demain Tout Tous Toute Toutes Certains Plusieurs Chaque Aucun N' Ne Pas Oui Non Est Sont "
        "Ainsi Aussi "
        "Enfin Toutefois Cependant Pourtant Parce Malgré Voici Voilà Merci",
    ),
    "es": _Words(
        "p.ej ej i.e e.g cf cfr aprox incl vgr a.C a.de.C d.C a.J.C",
        "Sr Sra Sres Sras Srta Dr Dra Dres Prof Profa Lic Ing Arq Abog D Dª D.ª Dña Don Ud Uds Vd Vds Excmo Excma "
        "Ilmo Ilma Mons "
        "Fr Sto Sta S Hno Hna Hnos Gral gral Cnel Cap Tte Sgto Av Avda Avd C Pl Pza Pº Ctra Urb dpto Dpto depto apdo Cía Cia "
        "EE.UU FF.AA JJ.OO RR.HH S.A S.L S.L.U tel tfno tlf máx mín ene feb abr may jun jul ago sep sept set oct nov dic "
        "lun mié jue vie sáb dom núms ed eds edit trad coord dir vols cta izq dcha km kg hab admón adm gob min prov pres "
        "secr depto univ fac inst Bco Cdad Pdte Vda",
        "núm num nº no n p pp pág págs pag fig figs art arts cap caps vol t tab ec sec secc apdo apart párr inc lib v vv ref",
        "etc a.m p.m",
        "El La Los Las Lo Un Una Unos Unas Él Ella Ellos Ellas Yo Tú Nosotros Ustedes Usted Este Esta Estos Estas "
        "Ese Esa Eso Esto "
        "Aquel Aquella Su Sus Mi Mis Tu Nuestro Nuestra Pero Y E O U Ni Si Cuando Como Porque Aunque Mientras Luego Después "
        "Entonces Antes Ahora Hoy Ayer Mañana Aquí Allí Así También Tampoco Ya No Sí Qué Quién Cómo Dónde Cuándo "
        "Cuál Que Quien "
        "En De Del A Al Con Sin Por Para Según Sobre Entre Desde Hasta Tras Durante Todo Todos Toda Todas Muchos "
        "Muchas Algunos "
        "Algunas Otro Otra Cada Ningún Es Son Era Fue Eran Está Están Hay Había Se Le Les Me Te Nos Sin Además",
    ),
    "it": _Words(
        "ad.es p.es es cfr cf i.e ca c.a incl ecc.mo vd v.d a.C d.C",
        "prof dott sig ing avv geom rag arch on sen gen col cap Sig Sigg Sig.ra Sig.na Sig.ri Dott Dott.ssa Dr "
        "Dr.ssa Prof Prof.ssa Ing Avv Arch Geom Rag On Sen Mons Don Fra S Ss St Sta "
        "Gen Col Cap Magg Ten Serg Comm Cav Uff Gr Egr Spett Gent Gent.mo Ill Pres Dir Segr Vs Ns V.le V P.za P.zza C.so Loc "
        "S.p.A S.r.l S.n.c tel cell max min genn gen febb feb apr magg giu giugn lug sett set ott nov dic lun mart merc giov "
        "ven sab dom ed edd trad vol cur coll prov reg com univ ist fac dip n.d.r op cit loc Rev",
        "n nn nr num p pp pag pagg fig figg art artt cap capp vol voll tab tav par sez eq all t l v vv cpv ref rif str",
        "ecc etc",
        "Il Lo La I Gli Le L' Un Uno Una Egli Lui Lei Noi Voi Loro Essi Io Tu Questo Questa Questi Queste Quello "
        "Quella Quelli "
        "Suo Sua Mio Mia Nostro Ma E Ed O Se Quando Come Perché Poiché Mentre Sebbene Poi Dopo Prima Allora Ora "
        "Adesso Oggi Ieri "
        "Domani Qui Qua Là Così Anche Neanche Già Non Sì No Che Chi Cosa Dove Quale Quanto In Nel Nella Nei Nelle Di "
        "Del Della "
        "Dei Delle A Al Alla Ai Alle Da Dal Dalla Con Su Sul Sulla Per Tra Fra Tutto Tutti Tutta Tutte Molti Molte "
        "Alcuni Alcune "
        "Altri Ogni Nessuno È Era Sono Erano Fu C' Ci Si Mi Ti Vi Secondo Durante Dopo Infine Inoltre",
    ),
    "pt": _Words(
        "p.ex ex i.e e.g cf cfr aprox incl obs a.C d.C",
        "Sr Sra Sres Srs Sras Srta Dr Dra Drs Dras Prof Profa Profs Eng Enga Arq Adv D Dom Exmo Exma Ilmo Ilma V.Exa "
        "V.Sa Exa V "
        "Mons Pe Fr Sto Sta S Gen gen Cel cel Cap cap Maj Ten Sgt Alm Min Pres Dep Sen Gov Av R Al Pç Pça Tv Est Rod "
        "Cia Ltda "
        "S.A E.U.A EUA tel tels máx mín jan fev abr mai jun jul ago set out nov dez seg qua qui sex sáb ed eds "
        "trad org orgs coord dir vols univ fac inst depto dept obs hab km kg Jr Neto Bras",
        "n nº no núm num p pp pág págs pag fig figs art arts cap caps vol t tab eq sec seç inc par v vv ref al",
        "etc a.m p.m",
        "O A Os As Um Uma Uns Umas Ele Ela Eles Elas Eu Tu Nós Você Vocês Este Esta Estes Estas Esse Essa Isso Isto "
        "Aquele Aquela "
        "Seu Sua Meu Minha Nosso Nossa Mas E Ou Se Quando Como Porque Embora Enquanto Depois Então Antes Agora Hoje "
        "Ontem Amanhã "
        "Aqui Ali Lá Assim Também Já Não Sim Que Quem Onde Qual Quanto Em No Na Nos Nas De Do Da Dos Das Ao À Aos Às "
        "Com Sem Por "
        "Pelo Pela Para Segundo Sobre Entre Desde Até Após Durante Todo Todos Toda Todas Muitos Muitas Alguns "
        "Algumas Outro Outra "
        "Cada Nenhum É Era Foi São Eram Está Estão Há Havia Além",
    ),
    "nl": _Words(
        "bijv d.w.z dwz o.a oa m.a.w n.a.v i.v.m t.o.v m.b.t i.p.v t.b.v a.h.v d.m.v m.i.v z.s.m i.h.b resp vgl ca "
        "circa incl "
        "excl ong evt zgn zg n.l nl t.w v.Chr n.Chr z.o.z t/m jl v.d v.h",
        "bv dhr mevr mw Dhr Mevr Mw mr Mr ir ing drs ds dr prof Prof Dr jhr fam Fa fa St Gen gen kol kapt lt sgt min "
        "Min burg wnd "
        "B.V N.V str Kerkstr tel max gem jan feb febr mrt apr jun jul aug sep sept okt nov dec red uitg "
        "vert bewerkt hs dept afd univ fac secr pres dir Jr Sr H.M Z.M",
        "nr nrs ma di wo do vr za zo p pp pag blz afb fig tab art artt hfdst hfst dl vol bd par lid eq bijl ref kol r",
        "enz etc e.d e.a u",
        "De Het Een Hij Zij Ze Wij We Jij Je Ik U Jullie Dit Dat Deze Die Zijn Haar Hun Ons Onze Mijn Maar En Of Als "
        "Toen Wanneer "
        "Omdat Hoewel Terwijl Daarna Dan Daar Hier Nu Vandaag Gisteren Morgen Ook Niet Geen Nee Ja Wat Wie Waar Hoe "
        "Waarom Welke "
        "In Op Aan Bij Met Na Naar Van Voor Uit Over Onder Om Door Tot Tijdens Volgens Sinds Zonder Tegen Er Is Was "
        "Waren Heeft "
        "Had Kan Alle Alles Veel Sommige Elke Ieder Iedere Toch Dus Want Echter Bovendien Zo Al Nog",
    ),
    "sv": _Words(
        "t.ex tex bl.a bla d.v.s dvs s.k sk f.d fd p.g.a pga m.a.o i.a fr.o.m t.o.m jfr jmf ca cirka inkl exkl resp "
        "ev alt spec "
        "f.Kr e.Kr föreg ung ungef obs",
        "hr Hr Dr dr prof Prof doc fil kand lic ing dir Dir fr S:t S:ta St kl tel max min jan feb febr apr jun jul "
        "aug sep sept okt "
        "nov dec mån tis ons tors fre lör sön uppl red förf övers utg ill milj mdr kr st univ avd sekr ordf f d m "
        "g.m Jr Sr AB",
        "nr n s sid sidd p kap bd bil fig tab art avsn st par vol ekv del d t ref § mom",
        "osv o.s.v etc m.m m.fl o.d",
        "Den Det De En Ett Han Hon Vi Ni Jag Du Man Denna Detta Dessa Hans Hennes Deras Vår Våra Min Mitt Sin Men "
        "Och Eller Om När "
        "Då Eftersom Fast Medan Sedan Därefter Där Här Nu Idag Igår Imorgon Också Inte Ingen Nej Ja Vad Vem Var Hur "
        "Varför Vilken "
        "I På Av Vid Med Efter Till Från För Ur Över Under Genom Utan Enligt Sedan Mot Är Var Har Hade Kan Ska Alla "
        "Allt Många "
        "Några Varje Så Dock Dessutom Även Bara Ännu Som",
    ),
    "da": _Words(
        "f.eks bl.a dvs d.v.s pga p.g.a mht m.h.t jf jfr ca cirka inkl ekskl evt hhv resp såk s.k f.Kr e.Kr vedr",
        "hr Hr fr Fr frk Dr dr prof Prof cand mag ing dir Sct Skt kl tlf tel max min jan feb mar apr jun jul aug sep "
        "sept okt nov "
        "dec tirs ons tors fre lør søn udg red forf overs mio mia kr stk afd gl univ Jr Sr",
        "nr s kap bd fig tab art afsn stk vol del bilag ref",
        "osv o.s.v etc m.m m.fl mv m.v o.l",
        "Den Det De En Et Han Hun Vi I Jeg Du Man Denne Dette Disse Hans Hendes Deres Vores Min Men Og Eller Hvis "
        "Når Da Fordi "
        "Mens Så Derefter Der Her Nu I På Af Ved Med Efter Til Fra For Over Under Uden Ifølge Mod Er Var Har Havde "
        "Kan Skal Alle "
        "Alt Mange Nogle Hver Ikke Nej Ja Hvad Hvem Hvor Hvorfor Hvordan Også Selv Dog",
    ),
    "pl": _Words(
        "np tzn tj tzw m.in min ok wg zob por zw tzn in płn płd wsch zach ds przyp śp nt pt n.p.m właśc",
        "prof dr im hab mgr inż lic doc gen płk ppłk kpt por mjr sierż ks bp abp kard św bł o br s ul al pl os p r w "
        "gm pow woj "
        "tys mln mld zł gr godz min sek r wiek tel faks maks sp z.o.o S.A sp.z.o.o red tłum oprac wyd hr ur zm sierp "
        "wrz paźdz "
        "grudz stycz lut kwiet czerw lip pon wt śr czw pt sob niedz mec sędz min dyr prez zast kier j n.e p.n.e pw ww ob",
        "nr nry poz s str ss rys ryc tab art ust par pkt rozdz t tt tom cz zał wz § lit vol",
        "itd itp etc i.in",
        "Ten Ta To Ci Te On Ona Ono Oni One Ja Ty My Wy Jego Jej Ich Mój Nasz Ale I A Lub Albo Jeśli Jeżeli Gdy Kiedy Jak Bo "
        "Ponieważ Choć Potem Wtedy Następnie Tam Tu Tutaj Teraz Dziś Dzisiaj Wczoraj Jutro Też Także Nie Tak Co Kto "
        "Gdzie Dlaczego "
        "Który Która W We Na Z Ze Do Od Po Pod Nad Przed Za Przez Dla O Bez Według Podczas Jest Są Był Była Było "
        "Byli Były Ma "
        "Wszyscy Wszystko Wiele Każdy Jednak Więc Dlatego Ponadto Może Czy",
    ),
    "cs": _Words(
        "např tzn tj tzv mj vč vd srov viz cca zejm popř příp resp tzn před.n.l př.n.l n.l jmen zvl",
        "prof Prof doc Doc dr Dr Ing ing Mgr mgr Bc MUDr JUDr PhDr RNDr CSc DrSc Ph.D gen Gen plk pplk kpt mjr por "
        "sv Sv bl ul nám tř "
        "p pí sl hod min sek tis mil mld kč tel fax max min ún bř kv čvn čvc srp zář říj pros út st čt pá "
        "red vyd nakl přel roč r stol s.r.o a.s spol n.p o.p.s ml st zn fa odd kat univ řed nar zem P",
        "po so ne č čís str s obr tab čl odst písm kap sv sl bod př odd díl § rov vol ref",
        "atd atp apod etc aj",
        "Ten Ta To Ti Ty On Ona Ono Oni Já My Vy Jeho Její Jejich Můj Náš Ale A I Nebo Pokud Když Až Jak Protože "
        "Ačkoli Pak Potom "
        "Tam Tady Zde Teď Nyní Dnes Včera Zítra Také Ne Ano Co Kdo Kde Proč Který Která V Ve Na Z Ze Do Od Po Pod "
        "Nad Před Za Přes "
        "Pro O Bez Podle Během Je Jsou Byl Byla Bylo Byli Má Všichni Všechno Mnoho Každý Však Proto Tak Tento Tato "
        "Toto Tyto Při",
    ),
    "ru": _Words(
        "т.е напр см ср т.н т.к т.о в.т.ч ок прибл вкл искл д.н.э до.н.э н.э",
        "г-н г-жа гг г гор ул пл пр просп пер д кв корп стр обл р-н с пос дер им св проф акад доц канд инж ген полк "
        "подп майор кап "
        "лейт серж адм зам зав нач дир пред сек мин руб коп долл тыс млн млрд трлн чел шт экз кг км см мм м ч сек янв февр "
        "мар апр июн июл авг сент сен окт нояб ноя дек пн вт ср чт пт сб вс тел факс макс мин ред изд пер сост отв "
        "авт и о в вв "
        "н э т ж л англ нем фр лат греч рус укр ин-т ун-т о-во ООО АО род ум др пр ст мн ед",
        "рис табл стр с ст гл т тт ч п пп пар разд прил вып кн № илл ил фиг ур оп",
        "и.т.д т.д и.т.п т.п и.др и.пр",
        "Он Она Оно Они Я Ты Мы Вы Это Этот Эта Эти Тот Та То Те Его Её Ее Их Мой Наш Но И А Или Если Когда Как "
        "Потому Хотя Пока "
        "Потом Тогда Затем Там Тут Здесь Теперь Сейчас Сегодня Вчера Завтра Также Тоже Не Нет Да Что Кто Где Почему Который "
        "В Во На С Со Из До От По Под Над Перед За Через Для О Об Без Согласно При У К Был Была Было Были Есть Все Всё Много "
        "Каждый Однако Поэтому Так Уже Ещё Еще Только Даже Чтобы После Между",
    ),
    "uk": _Words(
        "т.зв напр див пор тобто бл н.е до.н.е",
        "п пан г р рр м вул пл просп буд кв обл р-н с ім св проф акад доц інж ген полк зам зав дир тис млн млрд грн "
        "коп кг км тел "
        "ред вид січ лют бер квіт трав черв лип серп вер жовт груд о в ст",
        "рис табл стор с ст гл розд т ч п № дод",
        "і.т.д т.д і.т.п т.п та.ін тощо",
        "Він Вона Воно Вони Я Ти Ми Ви Це Цей Ця Ці Той Та Те Його Її Їх Але І А Або Якщо Коли Як Бо Хоча Потім Тоді "
        "Там Тут Тепер "
        "Зараз Сьогодні Вчора Завтра Також Не Ні Так Що Хто Де Чому Який У В На З Із До Від По Під Над Перед За Для "
        "Про Без Був "
        "Була Було Були Є Усі Все Кожен Однак Тому",
    ),
    "tr": _Words(
        "bkz örn yak vd krş",
        "Dr Prof Doç Av Müh Yrd Arş Gör Öğr Uzm Sn Hz Gen Alb Yzb Cad Sok Sk Mah Apt Blv Bul Ltd Şti A.Ş Tic San tel "
        "faks maks min "
        "Oca Şub Mar Nis May Haz Tem Ağu Eyl Eki Kas Ara M.Ö M.S İ.Ö T.C yy Alm İng Fr Ar",
        "no s sf şek res tab md bl böl c cilt vol ek",
        "vb vs vd",
        "Bu O Şu Ben Sen Biz Siz Onlar Bir Ama Fakat Ve Veya Eğer Çünkü Sonra Daha Önce Şimdi Bugün Dün Yarın Burada "
        "Orada Ne Kim "
        "Nerede Neden Nasıl Hangi Her Bütün Tüm Çok Bazı Hiç Evet Hayır Ancak Ayrıca Böylece İşte",
    ),
    "el": _Words(
        "π.χ λ.χ δηλ βλ πρβλ περ π.Χ μ.Χ",
        "κ κα κκ κος Δρ δρ καθ Αγ αγ Αρ λεωφ οδ τηλ σελ μέγ ελάχ Ιαν Φεβ Μαρ Απρ Ιουν Ιουλ Αυγ Σεπ Οκτ Νοε Δεκ εκ εκατ δισ "
        "χιλ Α.Ε Ε.Π.Ε επιμ μτφ εκδ τ υπ αντ στρ",
        "σ σελ αρ αριθ εικ πιν κεφ τόμ τ άρθρ παρ",
        "κ.λπ κλπ κ.ά κ.ο.κ",
        "Ο Η Το Οι Τα Τον Την Του Της Των Ένας Μια Ένα Αυτός Αυτή Αυτό Εγώ Εσύ Εμείς Εσείς Αλλά Και Ή Αν Όταν Όπως "
        "Γιατί Επειδή "
        "Μετά Τότε Εκεί Εδώ Τώρα Σήμερα Χθες Αύριο Επίσης Δεν Όχι Ναι Τι Ποιος Πού Πώς Σε Στο Στη Στην Στον Από Με "
        "Για Προς Χωρίς "
        "Είναι Ήταν Έχει Όλοι Όλα Πολλοί Κάθε Όμως",
    ),
    "fi": _Words(
        "esim ts ns mm ym eli vrt ks n noin eKr jKr",
        "hra rva nti tri prof toht maist ins joht puh max min tammi helmi maalis huhti touko kesä heinä elo syys "
        "loka marras joulu "
        "milj mrd klo toim suom painos v os al Oy",
        "nro s ss kuv taul luku art kohta osa liite mom",
        "jne yms ym etc",
        "Se Ne Hän He Minä Sinä Me Te Tämä Tuo Nämä Nuo Mutta Ja Tai Jos Kun Koska Vaikka Sitten Silloin Siellä "
        "Täällä Nyt Tänään "
        "Eilen Huomenna Myös Ei Kyllä Mitä Mikä Kuka Missä Miksi Miten On Oli Kaikki Moni Jokainen Kuitenkin Siksi",
    ),
    "hu": _Words(
        "pl ill ún vö kb stb Kr.e Kr.u i.e i.sz",
        "dr Dr prof ifj id özv Szt szt gen ezr u krt tel max min jan febr márc ápr máj jún júl aug szept okt nov dec "
        "Kft Rt Zrt Bt "
        "szerk ford kiad kb évf e m",
        "sz o old ábra táb fej bek köt t r cikk",
        "stb",
        "A Az Egy Ő Ők Én Te Mi Ti Ez Azok Ezek De És Vagy Ha Amikor Mert Bár Aztán Akkor Ott Itt Most Ma Tegnap "
        "Holnap Is Nem Igen "
        "Mit Ki Hol Miért Hogyan Melyik Van Volt Minden Sok Azonban Ezért",
    ),
    "ro": _Words(
        "de.ex ex cf cca aprox incl î.Hr d.Hr î.e.n",
        "dl Dl dna Dna d-na d-ra dr Dr prof Prof ing av arh gen col cpt lt sf Sf Sfânta str Str bd Bd bul cal tel "
        "max min ian feb "
        "febr mart apr iun iul aug sept oct nov dec ed edit trad red S.A S.R.L S.U.A mil mld dvs",
        "nr p pp pag fig tab art alin lit cap vol t sect anexa",
        "etc ș.a ş.a ș.a.m.d",
        "El Ea Ei Ele Eu Tu Noi Voi Acest Această Acesta Aceasta Acestea Un O Dar Și Sau Dacă Când Cum Pentru Deși "
        "Apoi Atunci Acolo "
        "Aici Acum Azi Ieri Mâine De Nu Da Ce Cine Unde În La Cu Fără Pe Din După Este Sunt Era Au A Toți Toate "
        "Mulți Fiecare Totuși",
    ),
    "hi": _Words("", "डॉ श्री प्रो कु सु पं सं इं ले मे जन", "पृ क्र सं"),
    "mr": _Words("", "डॉ श्री प्रा पं", "पृ क्र"),
    "ar": _Words("", "د أ م ص ج ط ت هـ أ.د ق.م م.م"),
}
SAME_WORDS: Final = {"nb": "da", "nn": "da", "no": "da", "sk": "cs", "gl": "es", "be": "ru", "af": "nl", "lb": "de"}


class Abbreviations(NamedTuple):
    """A language's abbreviations and starters as sets (see `_Words`).

    beginnings: abbreviations that contain full stops, and the beginnings of these that also contain one
    """

    inner: frozenset[str]
    usual: frozenset[str]
    numbers: frozenset[str]
    final: frozenset[str]
    starters: frozenset[str]
    beginnings: frozenset[str]
    has_ordinals: bool
    has_noun_capitals: bool
    has_syllables_without_vowels: bool


@cache
def abbreviations(language: str) -> Abbreviations:
    """The abbreviations of a language; `usual` includes those from Moses' list. language: code such as `en` or `en_US`"""
    from sacremoses.corpus import NonbreakingPrefixes  # imported late, because it takes half a second

    base = base_language(language)
    own = WORDS.get(SAME_WORDS.get(base, base), _Words())
    inner, usual, numbers, final = map(_with_capitals, own[:4])
    final |= set(COMMON_FINAL.split())
    moses = [word.partition(" ") for word in NonbreakingPrefixes().words(base)]
    numbers |= {word for word, _, mark in moses if mark.strip() == NUMBER_FOLLOWS}
    numbers -= usual
    usual |= {word for word, _, mark in moses if not mark.strip() and len(word) > 1}
    usual = (usual | _with_capitals(COMMON)) - numbers
    dotted = [word.split(".") for word in inner | usual | numbers | final if "." in word]
    return Abbreviations(
        inner=inner,
        usual=usual - inner - final,
        numbers=numbers - inner,
        final=final - inner,
        starters=frozenset(own.starters.split()),
        beginnings=frozenset(".".join(parts[:n]) for parts in dotted for n in range(2, len(parts) + 1)),
        has_ordinals=base in ORDINAL_LANGUAGES.split(),
        has_noun_capitals=base in NOUN_CAPITAL_LANGUAGES.split(),
        has_syllables_without_vowels=base in SYLLABIC_LANGUAGES.split(),
    )


def _with_capitals(words: str) -> frozenset[str]:
    """The words as listed, the same in capitals, and those in lower case also capitalised."""
    listed = words.split()
    capitals = [word[0].upper() + word[1:] for word in listed if word.islower()]
    return frozenset([*listed, *capitals, *(word.upper() for word in listed if len(word) > 1)])
