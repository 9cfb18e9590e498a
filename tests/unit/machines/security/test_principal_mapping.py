"""ssl.principal.mapping.rules: as in Kafka's manual, as its quirks, and as its errors."""

from __future__ import annotations

import pytest

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.principal_mapping import InvalidRules, PrincipalMapping

SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


class TestMapping:
    def test_the_default(self) -> None:
        assert PrincipalMapping().name(SUBJECT) == SUBJECT

    def test_the_example_of_kafkas_manual(self) -> None:
        mapping = PrincipalMapping(
            r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
            r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
            r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
        )
        assert mapping.name(SUBJECT) == "Duke"
        assert mapping.name("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US") == "duke@sme"
        assert mapping.name("cn=JohnDoe,OU=x") == "johndoe"
        assert mapping.name("OU=JavaSoft,O=Sun") == "OU=JavaSoft,O=Sun"

    def test_the_first_rule_that_matches_decides(self) -> None:
        mapping = PrincipalMapping("RULE:^OU=(.*)$/$1/, RULE:^CN=(.*?),.*$/$1/U , RULE:.+/late/")
        assert mapping.name("CN=a,O=b") == "A"

    def test_a_pattern_has_to_match_all(self) -> None:
        with pytest.raises(LoginRefused, match="no rule"):
            PrincipalMapping("RULE:CN=Duke/$0/").name(SUBJECT)

    @pytest.mark.parametrize("rules", ["", " , ,"])
    def test_without_rules_nobody_is_accepted(self, rules: str) -> None:
        with pytest.raises(LoginRefused):
            PrincipalMapping(rules).name(SUBJECT)

    def test_an_empty_name_is_refused(self) -> None:
        with pytest.raises(LoginRefused, match="empty"):
            PrincipalMapping().name("")
        with pytest.raises(LoginRefused, match="empty"):
            PrincipalMapping("RULE:^.*$//, DEFAULT").name(SUBJECT)

    def test_patterns_and_replacements_may_have_commas_and_escaped_slashes(self) -> None:
        assert PrincipalMapping(r"RULE:^CN=(.*?),OU=a\/b$/$1\/x, y/").name("CN=d,OU=a/b") == "d/x, y"

    def test_a_common_name_that_looks_like_a_unit(self) -> None:
        """The text of a subject has no `OU=` but that of a unit."""
        mapping = PrincipalMapping("RULE:^.*OU=Admins.*$/admin/")
        with pytest.raises(LoginRefused):
            mapping.name(r"CN=evil\,OU\=Admins")
        assert mapping.name(r"CN=evil\\,OU=Admins") == "admin"


class TestReplacements:
    """Java's words: $1, $0, \\$ and so on."""

    @pytest.mark.parametrize(
        ("replacement", "name"),
        [
            ("$2@$1", "b@a"),
            ("$0", "CN=a,OU=b"),
            ("$12", "a2"),
            ("$3", "$3"),
            ("$1$9", "a$9"),
            ("$45", "$45"),
            (r"\$1", "$1"),
            (r"a\b\\c", "ab\\c"),
            ("$01", "a"),
            ("plain", "plain"),
        ],
    )
    def test_groups(self, replacement: str, name: str) -> None:
        assert PrincipalMapping(f"RULE:^CN=(.*?),OU=(.*?)$/{replacement}/").name("CN=a,OU=b") == name

    def test_a_group_that_took_no_part_is_empty(self) -> None:
        assert PrincipalMapping("RULE:^CN=(a)|(b)$/[$1][$2]/").name("b") == "[][b]"

    def test_every_match_inside_the_text_is_replaced(self) -> None:
        """As Java's replaceAll: `.*` also matches the nothing at the end."""
        assert PrincipalMapping("RULE:.*/x/").name("CN=a") == "xx"
        assert PrincipalMapping("RULE:CN=(.*?)/<$1>/").name("CN=a") == "<>a"
        assert PrincipalMapping("RULE:(?:(a|b)X)*?/<$1>/").name("aXbX") == "<>a<>X<>b<>X<>"

    @pytest.mark.parametrize(("case", "name"), [("", "AäB"), ("L", "aäb"), ("U", "AÄB")])
    def test_case(self, case: str, name: str) -> None:
        assert PrincipalMapping(f"RULE:^CN=(.*)$/$1/{case}").name("CN=AäB") == name


class TestInvalidRules:
    @pytest.mark.parametrize(
        "rules",
        [
            "default",
            "DEFAULT/L",
            "DEFAULT DEFAULT",
            "DEFAULTRULE:a/b/",
            "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
            "rule:^CN=(.*?)$/$1/",
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
            "RULE:^CN=(.*?)$/L",
            "RULE:^CN=(.*?)$/$1/X",
            "RULE:^CN=(.*?)$/$1/l",
            "DEFAULT, nonsense",
            "RULE:(/$1/",
            "RULE:(?=a)a/b/",
            r"RULE:(a)\1/b/",
            "RULE:(a)/$/",
            "RULE:(a)/$x/",
            "RULE:(?<n>a)/${n}/",
            "RULE:a/$1/",
            "RULE:a/b\\/",
        ],
    )
    def test_they_are_refused_when_read(self, rules: str) -> None:
        with pytest.raises(InvalidRules, match=r"ssl\.principal\.mapping\.rules: "):
            PrincipalMapping(rules)
