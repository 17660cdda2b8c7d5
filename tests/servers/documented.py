#!/usr/bin/env python3
"""Goal: the commands and snippets of the pages in deploy work as they are written.

usage: documented.py BUILD_DIR

Each case is a script in namespaces of its own, with a network and copies of /etc,
/run, /var and /usr, where the project is installed.  Blocks of the pages are run
there, or put where they say.  `systemctl` is a script that starts a server as its unit
does.  All processes end with the script.  test_package.py has the first page whole.
"""

import concurrent.futures
import dataclasses
import pathlib
import re
import sys

import lib_service
from lib_service import TOP, Tally, main, new_plant

MORE = [TOP / "deploy" / name for name in ("growth.md", "personal-data.md")]
PAGES = "\n".join(page.read_text() for page in [*sorted(TOP.glob("deploy/**/README.md")), *MORE])
# Every block of these is run.
WHOLE = ("backup", "nginx", "lighttpd", "apache", "caddy", "haproxy", "runit")
used: set[str] = set()
SERVERS = ("nginx", "lighttpd", "Apache", "Caddy", "HAProxy")
# Whose access logs logrotate has, and by which name.
LOGGED = {"nginx": "nginx", "lighttpd": "lighttpd", "Apache": "apache2"}
CASE_S = 600.0  # against what hangs; a case may install a server
AT_ONCE = 4
OTHER = "another page of the site"
OFFSITE = "sftp:backups@backup.example:plant-store"


def block(beginning: str, occurrence: int = 0) -> str:
    """An indented block of the pages, by how it begins."""
    found = [each for each in blocks(PAGES) if each.startswith(beginning)]
    if len(found) <= occurrence:
        raise ValueError(f"no page has a block that begins: {beginning}")
    used.add(found[occurrence])
    return found[occurrence]


def blocks(text: str) -> list[str]:
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    parts = [part for each in found for part in re.split(r"\n\n", each)]
    return [re.sub(r"^    ", "", part.strip("\n"), flags=re.MULTILINE) + "\n" for part in parts]


PLACES = r"""
set -e
mount -t tmpfs none /mnt
for place in etc var usr; do
	mkdir -p /mnt/$place/{upper,work}
	mount -t overlay none /$place \
		-o lowerdir=/$place,upperdir=/mnt/$place/upper,workdir=/mnt/$place/work
done
mount -t tmpfs -o mode=755 none /run
ip link set lo up
# As Caddy's unit lets it use port 80.
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
BUILD="$build" PREFIX=/usr scripts/install install
cat >/usr/local/bin/systemctl <<'END'
#!/bin/bash
unit=/lib/systemd/system/$2.service
[[ $1 != re* ]] || {
	set -a
	eval "$(sed -n 's/^Environment="\(.*\)"$/"\1"/p' $unit | tr ' ' '\n' |
		sed 's/^"//; s/"$//' | paste -sd' ' | sed "s/-S /'-S '/")"
	user=$(sed -n 's/^User=//p' $unit)
	command=$(sed -n 's/^ExecStart=//p' $unit)
	${user:+runuser -u $user --} bash -c "$command" >>/mnt/server.log 2>&1 </dev/null &
}
END
chmod 755 /usr/local/bin/systemctl
echo "$other" >/var/www/html/other.html
# ask WHAT URL [CURL'S OPTIONS...]: a line WHAT STATUS BODY
ask() {
	local what=$1 url=http://127.0.0.1$2 answer
	shift 2
	answer=$(curl -s --max-time 10 -H "Content-Type: application/json" \
		-w '%{content_type}\n%{http_code}' "$@" "$url") || true
	echo "$what ${answer##*$'\n'} ${answer%$'\n'*}"
}
# until_serves BASE
until_serves() {
	for _ in {1..2000}; do
		[[ $(ask x "$1/plants" -d '{}') != "x 401"* ]] || break
		sleep 0.05
	done
}
# requests PREFIX BASE ID: when it serves, a plant without a token, also to another
# host, one with it, one of 60,000 bytes, and a body that is too large
requests() {
	until_serves "$2"
	ask "$1none" "$2/plants" -d "$plant"
	ask "$1foreign" "$2/plants" -d "$plant" -H "Host: foreign.example"
	ask "$1good" "$2/plants" -d "${plant/7/$3}" -H "Authorization: Bearer $token"
	echo "{\"id\":-$3,\"name\":\"$(head -c 60000 /dev/zero | tr '\0' f)\"}" |
		ask "$1long" "$2/plants" --data-binary @- -H "Authorization: Bearer $token"
	head -c 70000 /dev/zero | tr '\0' ' ' |
		ask "$1large" "$2/plants" --data-binary @- -H "Authorization: Bearer $token"
}
token_of() {
	grep -o 'pst_[A-Za-z0-9_-]*'
}
# until_logged FILE: ask until a request is in it
until_logged() {
	for _ in {1..1000}; do
		ask x /plants >/dev/null
		[[ ! -s $1 ]] || break
		sleep 0.1
	done
}
# rotated SERVER: the lines of the access log after a rotation by Debian's logrotate
# and one request more, and of the log before it
rotated() {
	local log=/var/log/$1/plant-store.log
	printf '#!/bin/sh\n' >/usr/sbin/policy-rc.d
	until_logged $log
	# Debian's script for lighttpd was seen to fail once, and to work again.
	logrotate -f /etc/logrotate.d/$1 || invoke-rc.d $1 reopen-logs || true
	until_logged $log
	echo "rotated $([[ -s $log && -s $log.1 ]]; echo $?) $(tail -n 1 $log)"
}
# A boot, too; only where the project has something.
create=(systemd-tmpfiles --create --prefix=/etc --prefix=/var/lib --prefix=/run)
"""


SHOW = "echo made $(stat -c '%U:%G %a' /var/lib/plant-store /etc/plant-store/tokens)\n"
INIT = block("install -d -o plant-store -g plant-store -m 0700")
TOKEN = f"token=$({block('plant-store token add').strip()} | token_of)\n"


def own_user() -> str:
    """User, store and token, of systemd's tools; the directory's rights are shown."""
    step = block("systemd-sysusers").replace("systemd-tmpfiles --create", '"${create[@]}"')
    boot = '"${create[@]}" >/dev/null 2>&1 || true\n'  # the next one keeps the token
    return f"{step.strip()} >/dev/null 2>&1 || true\n{SHOW}{INIT}{TOKEN}{boot}"


def service(base_path: str = "") -> str:
    command = block("/usr/share/plant-store/plant-store-start").strip()
    return f"PLANT_STORE_BASE_PATH={base_path} {command} >/mnt/service.log 2>&1 &\nserving=$!\n"


@dataclasses.dataclass(frozen=True)
class Case:
    what: str
    script: str
    expected: dict[str, tuple[int, object]]  # status, and a text of the body


ANSWERS = {
    "none": (401, '"error":1001'),
    "foreign": (401, '"error":1001'),
    "good": (200, '{"name":"Fern"}'),
    "long": (200, "f" * 60_000),
    "large": (413, '"error":3007'),
}


# The first page's, whose TLS needs a certificate.
NGINX = (
    "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=plants.example 2>/dev/null"
    " -keyout /etc/nginx/key.pem -out /etc/nginx/certificate.pem\n"
    + block("cp /usr/share/plant-store/nginx")
)


def only_sites() -> list[Case]:
    start = own_user() + service()
    new = "/plants -d \"${plant/7/9}\""
    good = "-H \"Authorization: Bearer $token\"\n"
    cases = []
    for server in SERVERS:
        commands = NGINX if server == "nginx" else block(f"# {server}\n")
        script = start + commands + "requests '' '' 7\n"
        expected = dict(ANSWERS)
        if server == "Caddy":
            expected["large"] = (413, "")  # by Caddy itself
            script += f"ask chunked {new} -H 'Transfer-Encoding: chunked' {good}"
            expected["chunked"] = (400, '"error":3003')
        if server == "HAProxy":
            basic = "-H 'Authorization: Basic eDp5'"
            script += f"ask list {new} {good.replace('Bearer', 'Basic eDp5, Bearer')}"
            script += f"ask two {new} {basic} {good}"
            expected |= {"list": (401, '"error":1004'), "two": (400, "")}
        if server in LOGGED:
            script += f"rotated {LOGGED[server]}\n"
            expected["rotated"] = (0, '"GET /plants" 401 ')
        cases.append(Case(f"{server} as the only site", script, expected))
    by_hand = {
        "lighttpd": block("lighttpd -D").replace(".conf\n", ".conf &\n"),
        "nginx": block("nginx -c"),
        "Apache": block("install -d /run/apache2"),
    }
    runit = "mkdir /etc/service\n" + block("install -D -m 755") + "/etc/service/plant-store/run &\n"
    user = block("useradd --system --no-create-home plant-store")
    start = user + INIT + SHOW + TOKEN + runit
    for server, commands in by_hand.items():
        script = start + commands + "requests '' '' 7\n"
        cases.append(Case(f"{server} by hand", script, ANSWERS))
    return cases


def caddy_elsewhere() -> list[Case]:
    """As the comments of its file have it changed: no path and no name is 200 by itself."""
    commands = block("# Caddy\n").splitlines(keepends=True)
    copied, restart = "".join(commands[:-1]), commands[-1]
    edit = "sed -i '%s' /etc/caddy/Caddyfile\n"
    mount = own_user() + service("/api") + copied + edit % r"s|/plants\* |/api/plants* |" + restart
    mount += "requests '' /api 7\nask outside /plants -d '{}'\nask beside /apis -d '{}'\n"
    outside = {"outside": (404, ""), "beside": (404, "")}
    tls = own_user() + service() + copied
    tls += edit % r"/^\tbind/d; s|^http://:80 |plants.example, https:// |"
    tls += "sed -n '/^#\\t/s/^#//p' /etc/caddy/Caddyfile >>/etc/caddy/Caddyfile\n"
    tls += edit % r"0,/^{/s//{\n\tlocal_certs\n\tskip_install_trust/" + restart
    tls += """
over_tls() {
	curl -sk -o /dev/null -w '%{http_code}' --max-time 10 -d '{}' "${@:2}" \
		--connect-to "$1::127.0.0.1:443" "https://$1/plants" || true
}
for _ in {1..2000}; do
	[[ $(over_tls plants.example) != 401 ]] || break
	sleep 0.05
done
echo "name $((10#$(over_tls plants.example))) "
echo "host $((10#$(over_tls plants.example -H 'Host: foreign.example'))) "
echo "handshake $((10#$(over_tls foreign.example))) "
ask clear /plants -d '{}'
ask named /plants -d '{}' -H 'Host: plants.example'
"""
    answers = {"name": (401, ""), "host": (401, ""), "handshake": (0, "")}
    clear = {"clear": (404, ""), "named": (404, "")}
    return [
        Case("Caddy with a mount", mount, ANSWERS | {"large": (413, "")} | outside),
        Case("Caddy with TLS", tls, answers | clear),
    ]


METHODS = ("GET", "PUT", "PATCH", "DELETE", "OPTIONS")
# What the site itself may have rules for.
BELOW = {"below": "/api/x", "name": "/api/" + "x" * 300, "include": "/api/x.inc",
         "php": "/api/plants.php", "backup": "/api/plants~"}


def existing_sites() -> list[Case]:
    cases = []
    for server in SERVERS[:3]:
        snippet = block(f"# {server}, ")
        comment = "".join(re.findall(r"^# (.*\n)", snippet, re.MULTILINE))
        path = re.search(r"/etc/\S+\.conf|/etc/\S+/default", comment)[0]
        then = re.sub(r"\s+", " ", re.search(r"; then\s+(.*)", comment, re.DOTALL)[1])
        then = then.replace("systemctl reload", "systemctl restart")  # as it does not run
        if server == "nginx":
            put = f"sed -i '/^\tserver_name _;/r /mnt/snippet' {path}\n"
        else:
            put = f"cp /mnt/snippet {path}\n"
        script = own_user() + service("/api")
        script += f"cat >/mnt/snippet <<'END'\n{snippet}END\n{put}{then} >/dev/null\n"
        script += "requests '' /api 7\nask other /other.html\nask page /nothing\n"
        for what, path in BELOW.items():
            script += f'ask {what} {path} -d "$plant" -H "Authorization: Bearer $token"\n'
        script += "ask head /api/plants -H X:$(head -c 60000 /dev/zero | tr '\\0' x)\n"
        for method in (*METHODS, "TRACE", "CONNECT"):
            script += f"ask {method} /api/plants -X {method} -H 'Authorization: Bearer '$token\n"
        script += "kill $serving; while [[ -e /proc/$serving ]]; do sleep 0.01; done\n"
        script += "ask down /api/plants -d '{}'\n"
        expected = ANSWERS | {
            "other": (200, OTHER),
            "page": (404, "html>"),
            # Before the path is known, the site's own page.
            "head": (431 if server == "lighttpd" else 400, "html>"),
            "TRACE": (405, "html>" if server == "nginx" else '"error":2002'),
            "CONNECT": (400 if server == "Apache" else 405,
                        '"error":2002' if server == "lighttpd" else "html>"),
            **{what: (404, '"error":2001') for what in BELOW},
            **{method: (405, '"error":2002') for method in METHODS},
            "down": (503, '"error":5007'),
        }
        cases.append(Case(f"{server} with a site that exists", script, expected))
    return cases


# What systemctl does here with the service, and with a backup and what follows it.
UNITS = r"""
systemctl() {
	local units=/usr/lib/systemd/system ours=/etc/systemd/system after
	case "$*" in
	"start plant-store-backup")
		runuser -u plant-store -- env $(has $units/$2.service Environment) \
			bash -c "$(has $units/$2.service ExecStart)"
		after=$ours/$(has $ours/$2.service.d/offsite.conf OnSuccess)
		has $after ExecStart | while read -r line; do
			env $(has $after Environment) $(cat "$(has $after EnvironmentFile)") $line \
				<"$(has $after StandardInput | sed s/^file://)"
		done
		;;
	"stop plant-store.socket"*) pkill -x multiwatch; rm /run/plant-store/socket ;;
	"restart plant-store") systemctl stop plant-store.socket; systemctl start plant-store.socket ;;
	"start plant-store.socket")
		env $(grep ^PLANT_STORE /etc/plant-store/environment) \
			/usr/share/plant-store/plant-store-start >>/mnt/service.log 2>&1 &
		until [[ -S /run/plant-store/socket ]]; do sleep 0.01; done
		;;
	"restart nginx") command systemctl "$@" && until_serves "" ;;
	esac
}
has() {
	sed -n "s/^$2=//p" "$1"
}
add() {
	echo "{\"id\":$1,\"name\":\"Fern\"}" | plant-store import
}
install -d -o plant-store -m 0700 /var/lib/plant-store-backup
install -g plant-store -m 0640 deploy/debian/environment /etc/plant-store/environment
systemctl start plant-store.socket
"""


def backup_elsewhere() -> Case:
    """Sent twice and restored.  A label is that of what is printed next."""
    block("apt-get install -y restic")  # is there
    send = block("systemctl start plant-store-backup\nrestic")
    restore = block("set -a; . /etc/plant-store/restic; set +a\nrestic restore")
    script = own_user() + UNITS + block("(umask 077; openssl")
    script += "echo modes 0 $(stat -c %a /etc/plant-store/restic*)\n"
    script += "add 1\n" + block("cp /usr/share/plant-store/backup") + send
    script += "add 2\necho 'sent 0 '\n" + send + "echo 'checked 0 '\n" + block("restic check")
    script += "add 3\nrm -r /var/lib/plant-store-backup/*\necho 'verified 0 '\n" + restore
    script += block("chown -R plant-store") + "echo 'restored 0 '\nplant-store export\n"
    script += "echo 'next 0 '\n" + send + "echo 'end 0 '\n"
    # From 0.17 on restic also keeps the oldest.
    old = re.match(r"restic 0\.1[0-6]\.", lib_service.run("restic", "version", text=True).stdout)
    kept = f"\n{1 if old else 2} snapshots"
    printed = {
        "modes": "600 600", "sent": kept, "checked": "no errors were found", "verified": " 2 plants, ",
        "restored": '\n{"id":1,"name":"Fern"}\n{"id":2,"name":"Fern"}', "next": kept,
        "end": "",
    }  # fmt: skip
    return Case("a backup elsewhere", script.replace(OFFSITE, "/mnt/elsewhere"),
                {what: (0, text) for what, text in printed.items()})


def one_database() -> Case:
    script = own_user() + UNITS + "plant-store token revoke nursery-1\n"
    empty = "rm -rf /etc/postgresql/* /var/lib/postgresql/*\n"
    empty += "pg_createcluster --locale C.UTF-8 --start $(ls /usr/lib/postgresql | sort -n | tail -1) main\n"
    script += empty + "".join(map(block, (
        "runuser -u postgres -- createdb", "(plant-store schema;", "echo PLANT_STORE_DATABASE=",
        "cp /usr/share/plant-store/nginx/{common,errors}.conf /etc/nginx/ &&")))
    script += "echo 'created 0 '\n" + block("curl --fail http://127.0.0.1/plants")
    script += "echo; echo 'stored 0 '\nrunuser -u plant-store -- plant-store export\n"
    script += "echo 'logged 0 '; cat /mnt/service.log\necho 'rights 0 '\n"
    script += "runuser -u postgres -- psql plants -Atc 'SELECT member::regrole, roleid::regrole"
    script += " FROM pg_auth_members'\n"
    script += "cd /mnt\n" + block("(umask 077; runuser -u postgres -- pg_dumpall")
    script += "pg_ctlcluster $(ls /etc/postgresql) main stop\n" + empty
    script += block("runuser -u postgres -- psql -v ON_ERROR_STOP=1 <roles.sql")
    script += """for _ in {1..1000}; do
        said=$(ask again /plants -d '{"id":2,"name":"Moss"}' -H "Authorization: Bearer $token")
        [[ $said != "again 200"* ]] || break
        sleep 0.1
    done\necho "$said"; echo 'restored 0 '\n"""
    script += "runuser -u plant-store -- plant-store export\n"
    return Case("PostgreSQL, one server", script, {
        "created": (0, '{"name":"Fern"}'), "stored": (0, '{"id":1,"name":"Fern"}'),
        "logged": (0, "a 200 response waits only for this server's disk"), "rights": (0, '"plant-store"|plants'),
        "again": (200, '{"name":"Moss"}'), "restored": (0, '{"id":1,"name":"Fern"}\n{"id":2,"name":"Moss"}'),
    })


# What certbot's questions are answered, and pebble, an authority for tests.
ACME = r"""
ip address add 10.9.9.9/32 dev lo
echo 10.9.9.9 plants.example >>/etc/hosts
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost \
	-keyout /mnt/pebble.key -out /mnt/pebble.pem 2>/dev/null
cat >/mnt/pebble.json <<'END'
{"pebble": {"listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
 "certificate": "/mnt/pebble.pem", "privateKey": "/mnt/pebble.key", "httpPort": 80, "tlsPort": 5001}}
END
PEBBLE_VA_NOSLEEP=1 PEBBLE_WFE_NONCEREJECT=0 pebble -config /mnt/pebble.json >/mnt/pebble.log 2>&1 &
export REQUESTS_CA_BUNDLE=/mnt/pebble.pem
mkdir -p /etc/letsencrypt
printf '%s\n' 'server = https://localhost:14000/dir' agree-tos=true non-interactive=true \
	register-unsafely-without-email=true >/etc/letsencrypt/cli.ini
cat >/usr/local/bin/systemctl <<'END'
#!/bin/sh
case $1 in
restart) nginx -s stop 2>/dev/null; while pgrep -x nginx >/dev/null; do sleep 0.1; done; nginx ;;
reload) nginx -s reload ;;
esac
END
apt-get() { :; } # it is there
until curl -sk -o /dev/null https://localhost:14000/dir; do sleep 0.1; done
serial() {
	openssl s_client -connect plants.example:443 </dev/null 2>/dev/null | openssl x509 -noout "$@"
}
over() {
	local what=$1 answer
	shift
	answer=$(curl -sk -w '%{content_type}\n%{http_code}' --noproxy '*' -d '{}' "$@")
	echo "$what ${answer##*$'\n'} ${answer%$'\n'*}"
}
"""


def acme() -> Case:
    lines = NGINX.splitlines(keepends=True)
    copies, switch_on = "".join(lines[1:-2]), "".join(lines[-2:])
    script = own_user() + service() + ACME + copies + "systemctl restart nginx\n"
    script += block("# a certificate by ACME") + switch_on
    script += "echo \"issuer 0 $(serial -issuer)\"\nold=$(serial -serial)\n"
    script += "over tls https://plants.example/plants\nover ipv6 -g 'https://[::1]/plants'\n"
    script += "over clear http://plants.example/plants\nover other http://plants.example/.well-known/x\n"
    script += "certbot renew -q --force-renewal --no-random-sleep-on-renew\nfor _ in {1..1000}; do\n"
    script += "[[ $(serial -serial) == \"$old\" ]] || break\nsleep 0.1\ndone\n"
    script += "[[ $(serial -serial) == \"$old\" ]] || echo 'renewed 0 '\nnginx -s stop\n"
    return Case("a certificate by ACME", script, {
        "issuer": (0, "Pebble"), "tls": (401, '"error":1001'), "ipv6": (401, '"error":1001'),
        "clear": (404, '"error":2001'), "other": (404, '"error":2001'), "renewed": (0, ""),
    })


def growth() -> Case:
    """Archived twice, closed, and the archive read into the next store."""
    archive, close = block("install -d -m 0700 /var/lib/plant-store-archive"), block(
        "systemctl stop plant-store.socket plant-store.service\nmv -T /var/lib/plant-store /var/lib/plant-store-2026")
    script = own_user() + UNITS + "cd /mnt\nplant-store export --cursor place -o first.jsonl\n"
    script += f"add 1\n{archive}sleep 1\nadd 2\n{archive}echo \"archived 0 $(ls | tr '\\n' ' ')\"\n"
    script += "cd /mnt\n" + close + "echo 'closed 0 '\nplant-store export\nadd 3\n"
    script += "echo 'rest 0 '\n" + block("plant-store export --dir /var/lib/plant-store-2026")
    script += "cat rest.jsonl\necho 'again 0 '\n" + block("cat /var/lib/plant-store-archive")
    return Case("growth", script + "plant-store export\necho 'end 0 '\n", {
        "archived": (0, "Z.jsonl.zst "), "closed": (0, ""), "end": (0, ""),
        "rest": (0, '{"id":1,"name":"Fern"}\n{"id":2,"name":"Fern"}'),
        "again": (0, '{"id":3,"name":"Fern"}\n{"id":1,"name":"Fern"}\n{"id":2,"name":"Fern"}'),
    })


def erasure() -> Case:
    offsite = "/etc/systemd/system/plant-store-backup.service.d/offsite.conf"  # of another page
    script = own_user() + UNITS + f"install -D /dev/null {offsite}\n"
    script += "for id in 77 7 -7; do add $id; done\nsystemctl start plant-store-backup\n"
    trap = '{"id":8,"name":"\\"plant\\":{\\"id\\":7,"}'
    script += f"echo '{trap}' | plant-store import\n"
    script += block("systemctl stop plant-store.socket plant-store.service\n"
                    "mv -T /var/lib/plant-store /var/lib/plant-store.old &&\n    install")
    script += block("rm -r /var/lib/plant-store-backup/*") + "echo 'left 0 '\nplant-store export\n"
    script += "echo \"places 0 $(grep -rlF '\"id\":7,' /var/lib/plant-store* | wc -l)\"\necho 'end 0 '\n"
    return Case("erasure", script, {
        "left": (0, '{"id":77,"name":"Fern"}\n{"id":-7,"name":"Fern"}\n' + trap), "end": (0, ""),
        "places": (0, "0"),
    })


def started_by_server() -> list[Case]:
    web = block("install -d -o www-data")
    add = web.splitlines()[-1]
    spawn = block("cp /usr/share/plant-store/lighttpd/common.conf")
    apache = block("# Apache\n")
    copies = {
        "lighttpd's spawn.conf": spawn,
        "lighttpd's cgi.conf": spawn.replace("spawn.conf", "cgi.conf"),
        "Apache's cgid.conf": apache.replace("proxy_fcgi.conf", "cgid.conf"),
    }
    places = "/var/lib/plant-store-web /etc/plant-store-web{,/tokens}"
    cases = []
    for what, copy in copies.items():
        script = own_user() + web.replace(add, f"token=$({add} | token_of)") + copy
        script += "requests '' '' 7\n"
        # The next boot.
        script += f"before=$(stat -c '%n %U:%G %a' {places})\n"
        script += '"${create[@]}" >/dev/null 2>&1 || true\n'
        script += f"after=$(stat -c '%n %U:%G %a' {places})\n"
        script += '[[ $before == "$after" ]] && echo "rights 0 same"\n'
        script += "requests again- '' 8\n"
        again = {f"again-{name}": told for name, told in ANSWERS.items()}
        cases.append(Case(what, script, ANSWERS | again | {"rights": (0, "same")}))
    return cases


def run(case: Case, build: pathlib.Path) -> tuple[dict[str, tuple[int, str]], str]:
    """The answers by what was asked, and all of the output."""
    done = lib_service.run(
        "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
        "bash", "-c", PLACES + case.script + "cat /mnt/*.log >&2 || true\n",
        cwd=TOP,
        env={
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "build": str(build),
            "other": OTHER,
            "plant": new_plant(7, "Fern").decode(),
        },
        text=True,
        timeout=CASE_S,
    )
    found = re.findall(r"^([\w-]+) (\d+) (.*(?:\n(?![\w-]+ \d+ ).*)*)", done.stdout, re.M)
    answers = {what: (int(status), body) for what, status, body in found}
    shown = re.sub("f{100,}", "ff...", done.stdout)
    return answers, f"{done.returncode}\n{shown}{done.stderr[-2000:]}"


def scenario(tally: Tally, build_dir: str) -> None:
    if tally.lacks("the commands of the pages in deploy work", "mounts", "a network of its own",
                   "apache2ctl", "caddy", "haproxy", "logrotate", "zstd", "certbot", "pebble", "ip", "restic", "pg_ctlcluster"):
        return
    build = pathlib.Path(build_dir).resolve()
    cases = only_sites() + caddy_elsewhere() + existing_sites()
    cases += started_by_server() + [backup_elsewhere(), one_database(), acme(), growth(), erasure()]
    shown = {each for name in WHOLE
             for each in blocks((TOP / "deploy" / name / "README.md").read_text())}
    shown |= {each for page in MORE for each in blocks(page.read_text())}
    tally.check(bool(shown) and shown <= used, "each block of the pages is run", shown - used)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(run, case, build) for case in cases]
        for case, one in zip(cases, runs):
            with tally.part(f"{case.what}: runs to its end"):
                answers, output = one.result()
                made = "made plant-store:plant-store 700 root:plant-store 640"
                tally.check(
                    made in output, f"{case.what}: the files have their owners and rights", output
                )
                for what, (status, text) in case.expected.items():
                    found = answers.get(what, (-1, ""))
                    well = found[0] == status and text in found[1]
                    well &= '"error"' not in text or '"}application/json' in found[1]
                    tally.check(well, f"{case.what}: {what} is {status}", output)


if __name__ == "__main__":
    sys.exit(main(scenario))
