"""Maps three-letter language codes (ISO 639-2 and 639-3) to the two-letter codes (ISO 639-1) that models use."""

from functools import cache
from typing import Final

from nmt.text.languages import base_language

# Each two-letter code, followed by other codes of the same language.
CODES: Final = """
    aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara,arb as:asm av:ava ay:aym az:aze,azj ba:bak be:bel bg:bul bi:bis
    bm:bam bn:ben bo:bod,tib br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:ces,cze cu:chu cv:chv cy:cym,wel da:dan
    de:deu,ger dv:div dz:dzo ee:ewe el:ell,gre en:eng eo:epo es:spa et:est,ekk eu:eus,baq fa:fas,per,pes ff:ful fi:fin
    fj:fij fo:fao fr:fra,fre fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat
    hu:hun hy:hye,arm hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido is:isl,ice it:ita iu:iku ja:jpn jv:jav
    ka:kat,geo kg:kon ki:kik kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor kr:kau ks:kas ku:kur,kmr kv:kom kw:cor ky:kir la:lat
    lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub lv:lav,lvs mg:mlg,plt mh:mah mi:mri,mao mk:mkd,mac ml:mal mn:mon,khk
    mr:mar ms:msa,may,zsm mt:mlt my:mya,bur na:nau nd:nde ne:nep,npi ng:ndo nl:nld,dut nn:nno no:nor,nb,nob nr:nbl nv:nav
    ny:nya oc:oci oj:oji om:orm or:ori,ory os:oss pa:pan pi:pli pl:pol ps:pus,pbt pt:por qu:que rm:roh rn:run ro:ron,rum
    ru:rus rw:kin sa:san sc:srd sd:snd se:sme sg:sag si:sin sk:slk,slo sl:slv sm:smo sn:sna so:som sq:sqi,alb,als sr:srp
    ss:ssw st:sot su:sun sv:swe sw:swa,swh ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso
    tt:tat tw:twi ty:tah ug:uig uk:ukr ur:urd uz:uzb,uzn ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:yid,ydd yo:yor za:zha
    zh:zho,chi,cmn zu:zul
"""


@cache
def two_letter_code(code: str) -> str:
    """The shortest code of a language, without region and script: `en` for `eng` and `en-GB`."""
    base = base_language(code)
    return _short_codes().get(base, base)


@cache
def _short_codes() -> dict[str, str]:
    rows = (row.partition(":") for row in CODES.split())
    return {long: short for short, _, others in rows for long in others.split(",")}
