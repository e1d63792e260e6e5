"""Where the embedded API knowingly differs from a real one.

The same list, with the reasons, is in docs/embedded-api.md; a test holds the two together. A test
that shows a difference carries its id (``@pytest.mark.differs``): it passes on the real server
and must fail on the embedded one, so that a difference that was removed leaves the list too.
"""

from collections.abc import Mapping

DIFFERENCES: Mapping[str, str] = {
    "no-protobuf": "Bodies and answers are JSON or YAML, never protobuf.",
    "reads-ignore-versions": "A read of one object does not wait for the version it asks for.",
    "not-acceptable-words": "A refusal for want of a common form is worded differently.",
    "no-diff-of-specs": "A refused change of a spec is not shown as a difference.",
    "no-storage-hashes": "Discovery does not tell hashes of storage versions.",
    "no-admission": "There are no quotas, limit ranges, webhooks or admission policies.",
    "some-validation": "Built-in kinds are checked as far as tests have needed it.",
    "patched-object-not-quoted": "A patch with values of the wrong type is not quoted whole.",
    "duplicates-unnoticed": "A field that is sent twice is not warned of: the last one counts.",
    "causes-once": "A cause that a server finds several times is told once.",
    "part-of-cel": "The rules of a custom resource are written in a small part of CEL.",
    "untyped-cel": "A rule is not checked for fields that its schema does not have.",
    "no-phase-times": "A volume does not say when its phase changed.",
    "owners-of-events": "Who owns a field of an Event is told in the words of v1.",
    "unowned-reviews": "Nobody owns the fields of a review.",
    "nothing-from-the-start": "A new server is empty: no roles, no namespaces, no priorities.",
}
