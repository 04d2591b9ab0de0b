"""Who someone is, and what they may: roles, passwords, CSRF, headers, limits on logins, single sign-on.

A route asks ``Principal.may``; the one table of what each role may is ``roles.ACTS``.
"""
