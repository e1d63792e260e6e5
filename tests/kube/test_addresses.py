import pytest

from backstay.kube.addresses import CONNECT_BUDGET, REST, Addresses, Turn, Turns

VIP = "https://10.96.0.1:443"
A, B, C = "https://192.0.2.1:6443", "https://192.0.2.2:6443", "https://192.0.2.3:6443"


def known(*learned: str, configured: str = VIP) -> Addresses:
    addresses = Addresses(configured)
    addresses.learn(learned)
    return addresses


def order_of(turns: Turns, *, left: float = 10.0) -> list[str]:
    taken = []
    while (turn := turns.next(left)) is not None:
        taken.append(turn.base)
    return taken


def test_the_configured_address_comes_first() -> None:
    assert known(B, A).order(0.0) == [VIP, A, B]


def test_the_address_that_worked_last_stays_first() -> None:
    addresses = known(A, B)
    addresses.worked(B)
    assert addresses.order(0.0) == [B, VIP, A]


def test_an_address_that_failed_comes_last_until_it_has_rested() -> None:
    addresses = known(A, B)
    addresses.failed(VIP, 5.0)
    assert addresses.order(5.0) == [A, B, VIP]
    assert addresses.order(5.0 + REST - 0.1) == [A, B, VIP]
    assert addresses.order(5.0 + REST) == [VIP, A, B]


def test_an_address_that_has_rested_is_not_returned_to_while_another_works() -> None:
    addresses = known(A)
    addresses.failed(VIP, 0.0)
    addresses.worked(A)
    assert addresses.order(REST + 100) == [A, VIP]


def test_where_all_failed_the_one_that_failed_first_is_tried_first() -> None:
    addresses = known(A, B)
    for now, url in enumerate((B, VIP, A)):
        addresses.failed(url, float(now))
    assert addresses.order(3.0) == [B, VIP, A]


def test_success_ends_a_rest() -> None:
    addresses = known(A)
    addresses.failed(VIP, 0.0)
    addresses.worked(VIP)
    assert addresses.order(0.1) == [VIP, A]


def test_what_is_learned_replaces_what_was_learned() -> None:
    addresses = known(A, B)
    addresses.learn([C, C])
    assert addresses.all == (VIP, C)


def test_an_empty_lesson_teaches_nothing() -> None:
    addresses = known(A)
    addresses.learn([])
    assert addresses.all == (VIP, A)


def test_the_configured_address_is_not_learned_a_second_time() -> None:
    assert known(A, B, configured=A).all == (A, B)


def test_an_address_that_is_no_more_is_left() -> None:
    addresses = known(A, B)
    addresses.worked(A)
    addresses.learn([B, C])
    assert addresses.order(0.0) == [VIP, B, C]


def test_an_address_that_comes_back_has_forgotten_its_failures() -> None:
    addresses = known(A, B)
    addresses.failed(A, 0.0)
    addresses.learn([B])
    addresses.learn([A, B])
    assert addresses.order(0.1) == [VIP, A, B]


@pytest.mark.parametrize(
    "gateway", ["https://rancher.example/k8s/clusters/c1", "http://127.0.0.1:8001"]
)
def test_nothing_is_learned_behind_a_gateway(gateway: str) -> None:
    assert known(A, configured=gateway).all == (gateway,)


def test_a_slash_at_the_end_is_not_a_path() -> None:
    assert known(A, configured="https://api.example/").all == ("https://api.example/", A)


def test_certificates_are_checked_against_the_configured_host() -> None:
    assert known(A).host == "10.96.0.1"
    assert known(A, configured="https://[2001:db8::1]:6443").host == "2001:db8::1"


@pytest.mark.parametrize("learned", [0, 1, 2, 3, 7])
def test_all_addresses_together_get_the_connect_budget(learned: int) -> None:
    addresses = known(*(f"https://192.0.2.{n}:6443" for n in range(learned)))
    shares = [addresses.connect_timeout] * len(addresses.all)
    assert sum(shares) == pytest.approx(CONNECT_BUDGET)


def test_no_share_is_too_short_to_connect_at_all() -> None:
    assert known(*(f"https://192.0.2.{n}:6443" for n in range(100))).connect_timeout == 0.25


def test_every_address_has_one_turn() -> None:
    turns = Turns(known(A, B), 0.0)
    assert order_of(turns) == [VIP, A, B]


def test_a_turn_says_whether_another_address_comes_after_it() -> None:
    turns = Turns(known(A), 0.0)
    first, last = turns.next(10.0), turns.next(9.0)
    assert (first and first.last, last and last.last) == (False, True)


def test_an_address_that_was_too_slow_has_one_more_turn_after_the_others() -> None:
    turns = Turns(known(A), 0.0)
    slow = turns.next(10.0)
    assert slow == Turn(VIP, 1.0, hurried=True, last=False)
    turns.unreached(slow, after=1.0)
    assert turns.next(9.0) == Turn(A, 1.0, hurried=True, last=False)
    patient = turns.next(8.5)
    assert patient == Turn(VIP, 8.5, hurried=False, last=True)
    turns.unreached(patient, after=8.0)
    assert turns.next(0.5) is None


def test_slow_addresses_share_the_time_that_is_left() -> None:
    turns = Turns(known(A), 0.0)
    for _ in range(2):
        turn = turns.next(10.0)
        assert turn is not None
        turns.unreached(turn, after=turn.patience)
    assert turns.next(8.0) == Turn(VIP, 4.0, hurried=False, last=False)
    assert turns.next(4.0) == Turn(A, 4.0, hurried=False, last=True)


def test_an_address_that_refuses_has_no_second_turn() -> None:
    turns = Turns(known(A), 0.0)
    refused = turns.next(10.0)
    assert refused is not None
    turns.unreached(refused, after=0.001)
    assert order_of(turns) == [A]


def test_nobody_has_a_turn_when_the_time_is_over() -> None:
    assert Turns(known(A), 0.0).next(0.0) is None


def test_a_call_with_little_time_leaves_some_of_it_to_every_address() -> None:
    turns = Turns(known(A), 0.0)
    assert turns.next(0.5) == Turn(VIP, 0.25, hurried=True, last=False)
    assert turns.next(0.25) == Turn(A, 0.25, hurried=True, last=True)
