"""The next certificate of a member that makes its keys itself: by the enroller, or by a file that was carried here.

A request proves itself: the key that it replaces has signed it. So it does not matter who brings it.
"""

from __future__ import annotations

from vedette.fleet.certificates import fingerprint, requested_key, signed_by
from vedette.fleet.enrolment import EnrolmentRefused, Renewal, read_renewal_request
from vedette.region.enroll import Region


def renew(region: Region, fleet: str, name: str, request: bytes, days: int) -> tuple[Renewal, bool]:
    """The answer to a member's request, and whether it is another one than before: a request comes again when its
    answer was lost. Raises ValueError with the reason why not, OSError."""
    if region.member(name).fleet != fleet:
        raise ValueError(f"{name} is not of fleet {fleet}")
    csr, signature = read_renewal_request(request)
    public, member = requested_key(csr), region.member(name)
    again = fingerprint(public) == member.key
    if not again and not signed_by(csr.encode(), signature, region.certificate(name)):
        raise EnrolmentRefused("the request is not signed by the key that it replaces")
    certificate = region.renew(name, public, days=days)
    return answer(region, certificate), not again


def answer(region: Region, certificate: bytes) -> Renewal:
    """``certificate`` (PEM) with the authorities as they are now, which a trusted one vouches for."""
    authorities = region.authorities
    return Renewal(certificate.decode(), authorities.pem().decode(), authorities.vouch())
