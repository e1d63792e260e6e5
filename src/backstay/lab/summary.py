"""Summary: what remains on the terminal when the show is over. Pure."""

from backstay.lab.recovery import DETECT, HELD
from backstay.lab.show import DIES, IS_CUT_OFF, Report
from backstay.lab.view import Paint, stages


def summary(report: Report, paint: Paint) -> list[str]:
    lines = [paint("bold", f"{DIES} lost its power: {_recovered(report)}")]
    if report.stages:
        lines += ["", *stages(report.stages, report.speed, paint)]
    lines += ["", *_outages(report)]
    if report.cut_off:
        lines += ["", paint("bold", f"{IS_CUT_OFF} was cut off: {_undisturbed(report)}")]
    return [*lines, "", *_verdict(report, paint)]


def _recovered(report: Report) -> str:
    return f"{report.recovered} of {report.protected} protected workloads recovered on other nodes."


def _outages(report: Report) -> list[str]:
    took = {each.stage: each.seconds for each in report.stages}
    detect, held = took.get(DETECT, 0.0), took.get(HELD, 0.0)
    rest = max(0.0, report.down_seconds - detect - held)
    return [
        f" with Backstay     down for {report.down_seconds:5.1f} s: {detect:.1f} s to notice, "
        f"{held:.1f} s until somebody had",
        f"                   looked, {rest:.1f} s to recover",
        f" plain Kubernetes  down for {report.plain_down_seconds:5.1f} s: until {DIES} had its "
        "power back",
    ]


def _undisturbed(report: Report) -> str:
    kept = f"{report.undisturbed} of {report.cut_off} workloads ran on undisturbed"
    refused = "; a wrong word was refuted" if report.wrong_confirmation_refused else ""
    return f"{kept}{refused}."


def _verdict(report: Report, paint: Paint) -> list[str]:
    broken = report.invariants_broken
    counted = (
        f"Invariants on the ground truth: checked {report.invariants_checked:,} times, "
        f"broken {broken}."
    )
    lines = [paint("bad" if broken else "good", counted)]
    lines += [paint("bad", f"  {breach}") for breach in report.breaches[:10]]
    if report.failure:
        lines.append(paint("bad", f"The demo did not come to its end: {report.failure}."))
    return lines
