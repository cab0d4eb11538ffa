/* SPDX-License-Identifier: Apache-2.0 */

/* Two rules keep it honest. A finding needs a fact that was seen: what is not known makes no finding, but an entry of what was
 * not looked at. And one cause makes one finding: when slurmctld does not answer, nothing is said about what it would have told.
 *
 * Bounds: DESIGN's numbers where it has one, else beside the constant where it comes from. */

#include "advisor-agent/doctor/judge.h"
#include "advisor-agent/doctor/read.h"

#include <stdarg.h>
#include <stdio.h>

#define SLOW_MS          2000 /* an idle slurmctld answers in some 10 ms, 100 ms for 10,000 jobs (adapters/slurm/strain.c) */
#define SILENT_MS        4000 /* one that is gone refuses at once; one that hangs is given up after MessageTimeout, 10 s */
#define SKEW_WARN_MS     2000 /* a time in slurmctld's words then stands visibly before or after ours */
#define SKEW_FAULT_MS    5000 /* half the life of our commands' credentials */
#define NODE_AHEAD_S     5
#define STEP_MS          1000
#define OLDEST_RELEASE   2205 /* the releases that the adapter was measured on */
#define NEWEST_RELEASE   2605
#define UNDECIDED_S      60 /* the window in which a mass failure shows itself: an undecided job is held at MinJobAge/3 */
#define COMPLETE_WAIT_S  30
#define DISK_LOW_BYTES   (256 * INT64_C(1048576)) /* a journal is compacted at some MiB; the rest is others' */
#define DISK_FULL_BYTES  (16 * INT64_C(1048576))
#define CERT_SOON_S      (14 * INT64_C(86400))
#define CLOCK_BACK_S     60

#define FAULT   DOCTOR_FAULT
#define WARNING DOCTOR_WARNING
#define NOTE    DOCTOR_NOTE

#define NOTHING_WORKS "Nothing works: no job is seen, nothing is done."

enum kind {
    AGENT_CONFIG_INVALID, AGENT_CONFIG_INCOMPLETE, NOT_AGENT_USER,
    NO_SLURM_CONF, SLURM_CONF_UNREADABLE, SLURM_CONF_BAD, SLURM_TOOLS_MISSING, MUNGE_DOWN, CREDENTIAL_REFUSED, SHORT_TTL_REFUSED,
    AUTH_NOT_MUNGE, SLURMCTLD_DOWN, SLURMCTLD_SILENT, SLURMCTLD_BACKUP_DOWN, SLURMCTLD_SLOW, ANSWER_UNREADABLE, JOB_LIST_UNREADABLE,
    VERSION_UNTRIED, CLIENT_NEWER, RATE_LIMITED, CLUSTER_NAME_DIFFERS, FEDERATED, SEVERAL_CLUSTERS,
    OPERATOR_MISSING, RIGHTS_UNKNOWN, JOBS_HIDDEN, MORE_RIGHTS_THAN_NEEDED,
    ACCOUNTING_ABSENT, SLURMDBD_UNREACHABLE, ACCOUNTING_NO_COMMENT,
    MIN_JOB_AGE_BELOW_POLL, MIN_JOB_AGE_SHORT, MIN_JOB_AGE_ZERO, JOB_REQUEUE_OFF, REQUEUE_EXIT_SET, REQUEUE_EXIT_OVERLAP,
    KILL_WAIT_LONG, COMPLETE_WAIT_LONG, INACTIVE_LIMIT_SET, NODE_EPILOG_SET, CTLD_EPILOG_ABSENT, MESSAGE_TIMEOUT_LONG, OUTPUT_TRUNCATED,
    CLOCK_SKEW, CLOCK_SKEW_LARGE, CLOCK_NOT_SYNCED, CLOCK_STEPPED, CLOCK_WENT_BACK, NODE_CLOCK_AHEAD,
    TAIL_HELPER_MISSING, TAIL_HELPER_NOT_RUNNABLE, TAIL_HELPER_NO_RIGHTS, TAIL_HELPER_ODD, TAIL_HELPER_FOR_ALL, TAIL_OFF,
    OUTPUT_UNREADABLE, OUTPUT_NOT_HERE, OUTPUT_HANGS, OUTPUT_NODE_LOCAL,
    STATE_DIR_MISSING, STATE_DIR_NOT_WRITABLE, STATE_DIR_OPEN, STATE_DIR_VOLATILE, DISK_FULL, DISK_NEARLY_FULL,
    JOURNAL_DAMAGED, JOURNAL_UNREADABLE, STEPS_OPEN, HOLDS_UNATTENDED, DUPLICATE_AGENT,
    CEILING_NOT_SET, CEILING_UNUSABLE, CEILING_OFF, JOB_COMMENT_MALFORMED,
    NOT_ENROLLED, CERT_UNREADABLE, CERT_EXPIRED, CERT_NOT_YET_VALID, CERT_NEAR_EXPIRY, CERT_OTHER_CLUSTER, KEY_EXPOSED,
    CERT_NOT_RENEWABLE, CONTROL_PLANE_UNREACHABLE, CONTROL_PLANE_TLS, CONTROL_PLANE_REFUSES, CONTROL_PLANE_PLAIN,
    KINDS
};

#define K(code, severity, what, means, cure) [code] = { #code, severity, what, means, cure }
static const struct doctor_kind kinds[KINDS] = {
    /* the agent's own settings */
    K(AGENT_CONFIG_INVALID, FAULT, "The agent's configuration cannot be used.", "The agent does not start.",
      "Mend the line that is named; `advisor-agent --config FILE --check-config` checks the file."),
    K(AGENT_CONFIG_INCOMPLETE, FAULT, "The configuration does not say which cluster this is, or where the control plane is.",
      "The agent does not start.", "Set `cluster` and `control_plane.target` in the agent's configuration."),
    K(NOT_AGENT_USER, WARNING, "This was run as another user than the one the state folder belongs to.",
      "What is said here of rights and files is true for this user, not for the agent.",
      "Run it as the agent's user: `runuser -u USER -- advisorctl doctor`. If the folder should be another's: `chown -R USER DIR`, USER the agent's."),

    /* reaching Slurm */
    K(NO_SLURM_CONF, FAULT, "There is no slurm.conf on this host.", NOTHING_WORKS,
      "Put the cluster's slurm.conf at /etc/slurm/slurm.conf, or name it: `scheduler.slurm_conf`. Where the site is configless, run sackd or "
      "slurmd here: they keep it in /run/slurm/conf."),
    K(SLURM_CONF_UNREADABLE, FAULT, "slurm.conf, or a file that it includes, cannot be read or copied.", NOTHING_WORKS,
      "Let the agent's user read it: `chmod a+r FILE`."),
    K(SLURM_CONF_BAD, FAULT, "Slurm's tools do not understand slurm.conf.", NOTHING_WORKS,
      "Copy the cluster's slurm.conf to this host again; `scontrol ping` names the line."),
    K(SLURM_TOOLS_MISSING, FAULT, "Tools of Slurm are missing on this host.", "What the missing ones are for: scontrol everything, squeue seeing jobs, "
      "scancel ending them, sinfo nodes, sacct ends that nobody saw.",
      "Install Slurm's client tools (Debian: `apt install slurm-client`), or set `scheduler.bin_dir` to where they are."),
    K(MUNGE_DOWN, FAULT, "munged does not answer on this host.", NOTHING_WORKS,
      "Start it: `systemctl start munge`, and look at `systemctl status munge`. The socket is what AuthInfo in slurm.conf names."),
    K(CREDENTIAL_REFUSED, FAULT, "slurmctld takes no credential of this host.", NOTHING_WORKS,
      "Both hosts need the same munge.key and clocks that agree: compare `sha256sum /etc/munge/munge.key` and `date +%s` on both, copy the key, "
      "restart munge."),
    K(SHORT_TTL_REFUSED, FAULT, "slurmctld takes our credentials when they live long, and not when they live for 10 s as the agent's do.",
      "Nothing works. The short life is what keeps a command that got no answer from landing late.",
      "Set both clocks by NTP (`chronyc tracking` or `timedatectl`), they are more than 10 s apart."),
    K(AUTH_NOT_MUNGE, WARNING, "Slurm does not authenticate by munge here.",
      "How long a command without an answer can still take effect was measured with munge alone: the agent's waits rest on it.",
      "Use AuthType=auth/munge, or raise `scheduler.landing_bound` to the life of a credential here."),
    K(SLURMCTLD_DOWN, FAULT, "slurmctld is not there.", "Nothing works until it is back; what is held stays held.",
      "Start it (`systemctl start slurmctld` on its host), and check SlurmctldHost and SlurmctldPort of this host's slurm.conf, and firewalls between."),
    K(SLURMCTLD_SILENT, FAULT, "slurmctld does not answer in time.", "Nothing works until it does; what is held stays held.",
      "Look at it on its host: `systemctl status slurmctld`, its log, its load; a firewall that drops packets looks the same."),
    K(SLURMCTLD_BACKUP_DOWN, WARNING, "One of several slurmctld is down.", "If the other one goes too, nothing works.",
      "Start it, or take its SlurmctldHost line out."),
    K(SLURMCTLD_SLOW, WARNING, "slurmctld answers slowly.", "The agent looks less often, up to eight times; ends are seen later.",
      "`sdiag` on its host shows which calls take long and whose they are."),
    K(ANSWER_UNREADABLE, FAULT, "An answer of Slurm's tools is not what any known release prints.",
      "What it would have told is unknown, and the agent does nothing on what is unknown.",
      "Run the command that is named by hand; a wrapper or SLURM_* setting in the tool's place may print more. Otherwise report it with the output."),
    K(JOB_LIST_UNREADABLE, FAULT, "The list of all jobs cannot be read.", "No job is seen: nothing is judged and nothing is done.",
      "Run the command that is named by hand, as the agent's user, and mend what it complains of."),
    K(VERSION_UNTRIED, NOTE, "This release of Slurm was not tried: the adapter was measured on 22.05, 24.11 and 26.05.",
      "Where it behaves differently the agent takes what it reads as unknown.", "Begin in mode observe, and compare what is told with squeue."),
    K(CLIENT_NEWER, WARNING, "The tools on this host are of a newer release than slurmctld.", "Slurm does not promise that such tools are understood.",
      "Install the tools of slurmctld's release on this host, or of an older one."),
    K(RATE_LIMITED, NOTE, "slurmctld limits how many calls a user may make (rl_enable).",
      "Tools wait and try again when it refuses, which looks like a slow slurmctld: the agent then looks less often.",
      "The agent makes some four calls a minute and one or two for each job that changes: leave rl_bucket_size and rl_refill_rate at or above their "
      "defaults (30 and 2 a second)."),
    K(CLUSTER_NAME_DIFFERS, NOTE, "The cluster is called otherwise in Slurm than in Advisor.", "None; people may look for the wrong name.",
      "Nothing, if that is meant; else set `cluster`, and enrol under that name."),
    K(FEDERATED, WARNING, "The cluster is a member of a federation.",
      "A job may start on another cluster than the one that took it. Advisor looks after each cluster by itself: it was not tried with siblings.",
      "Leave jobs that may move out: no comment for Advisor on jobs that were submitted with --clusters or by the federation."),
    K(SEVERAL_CLUSTERS, NOTE, "The accounting database knows several clusters.", "This agent looks after the one of its slurm.conf.",
      "Run one agent for each cluster that is to be looked after."),

    /* rights */
    K(OPERATOR_MISSING, FAULT, "The agent's user may not act on others' jobs.",
      "Jobs are seen and judged (mode observe), nothing can be done: preserve, interrupt, make_requeueable, constrain, release, cancel and rearm_child are refused.",
      "`sacctmgr modify user USER set adminlevel=Operator`, or, if Slurm does not know it: `sacctmgr add user USER account=root adminlevel=Operator`."),
    K(RIGHTS_UNKNOWN, WARNING, "slurmctld did not tell what the agent's user may do.",
      "If it is not Operator, nothing can be done. Where PrivateData hides jobs the agent takes every list for incomplete.",
      "Run `scontrol -o show assoc_mgr flags=users users=USER` as that user; it should end with AdminLevel=Operator."),
    K(JOBS_HIDDEN, FAULT, "PrivateData hides others' jobs, and the agent's user is not Operator.", "No list is complete: nothing is judged.",
      "`sacctmgr modify user USER set adminlevel=Operator`."),
    K(MORE_RIGHTS_THAN_NEEDED, NOTE, "The agent's user may do more in Slurm than Advisor needs.", "None. Operator is enough for every verb.",
      "`sacctmgr modify user USER set adminlevel=Operator`, and run the agent as a user of its own."),

    /* accounting */
    K(ACCOUNTING_ABSENT, WARNING, "There is no slurmdbd.",
      "How a job ended that slurmctld forgot is never known; many jobs that vanish at once are believed only after three looks; level Operator cannot "
      "be given, so that only root or SlurmUser may act.",
      "Set up slurmdbd and AccountingStorageType=accounting_storage/slurmdbd."),
    K(SLURMDBD_UNREACHABLE, FAULT, "slurmdbd does not answer.",
      "How a job ended that slurmctld forgot is not known meanwhile; after a restart of slurmctld rights may not be known either.",
      "Start it (`systemctl start slurmdbd` on AccountingStorageHost); `sacctmgr ping` and its log tell more."),
    K(ACCOUNTING_NO_COMMENT, WARNING, "Accounting keeps no job comments.",
      "Once slurmctld has forgotten a job nobody can tell from Slurm whether it had opted in. The agent itself reads comments from slurmctld.",
      "AccountingStoreFlags=job_comment in slurm.conf (beside what is there), then `scontrol reconfigure`. job_env, job_extra and job_script are not "
      "needed."),

    /* settings of slurm.conf */
    K(MIN_JOB_AGE_BELOW_POLL, FAULT, "slurmctld forgets ended jobs before the agent has looked twice.",
      "Failed jobs vanish before they can be held (preserve): they cannot be restarted.",
      "MinJobAge=300 in slurm.conf and `scontrol reconfigure`, or a shorter `poll.interval`."),
    K(MIN_JOB_AGE_SHORT, WARNING, "slurmctld forgets ended jobs soon.",
      "An undecided job has to be held after a third of MinJobAge, which is before a mass failure shows itself (60 s): more jobs are held than needed, "
      "and an agent that is away for MinJobAge loses what ended.",
      "MinJobAge=300 (Slurm's default) in slurm.conf, then `scontrol reconfigure`."),
    K(MIN_JOB_AGE_ZERO, WARNING, "slurmctld never forgets ended jobs (MinJobAge=0; 22.05 makes 2 s of it, which is told as such).",
      "The list of jobs grows until MaxJobCount: each look takes longer, and then no job can be submitted.",
      "MinJobAge=300 in slurm.conf, then `scontrol reconfigure`."),
    K(JOB_REQUEUE_OFF, WARNING, "Jobs cannot be requeued unless they ask for it (JobRequeue=0).",
      "A job without --requeue that has ended cannot be restarted. While it runs make_requeueable mends that, if the agent sees it in time.",
      "JobRequeue=1 in slurm.conf, or `#SBATCH --requeue` in jobs that opt in."),
    K(REQUEUE_EXIT_SET, NOTE, "Slurm itself requeues or holds jobs by their exit code.", "Advisor leaves a job alone that Slurm has requeued.",
      "Nothing, if it is meant. Else take the codes out of RequeueExit and RequeueExitHold."),
    K(REQUEUE_EXIT_OVERLAP, WARNING, "Exit codes are in RequeueExit and RequeueExitHold.", "Slurm requeues such a job at once, without hold: it may run in circles, "
      "and Advisor leaves it alone.",
      "Take the codes out of one of the two, then `scontrol reconfigure`."),
    K(KILL_WAIT_LONG, WARNING, "Jobs may take long to end after they were told to (KillWait).",
      "interrupt waits until the job is gone, for `scheduler.action_deadline` at most: it is given up and tried again later.",
      "KillWait=30 (Slurm's default), or a longer `scheduler.action_deadline`."),
    K(COMPLETE_WAIT_LONG, WARNING, "Slurm starts nothing for a while after a job has ended (CompleteWait).", "Restarted jobs wait for it as well.",
      "A smaller CompleteWait in slurm.conf."),
    K(INACTIVE_LIMIT_SET, NOTE, "Slurm ends interactive jobs whose command is silent (InactiveLimit).",
      "None for batch jobs. Others look cancelled, and are left alone.", "Nothing, if that is meant."),
    K(NODE_EPILOG_SET, NOTE, "An Epilog runs on the nodes when a job has ended.",
      "The job is COMPLETING until it is over, and nothing is done to it in that time.", "Keep it short: `time` it on a node."),
    K(CTLD_EPILOG_ABSENT, NOTE, "slurmctld runs nothing at a job's end (EpilogSlurmctld).",
      "Slurm judges jobs that depend on a failed one 0.4 s after its end, which no look can beat: with afterok they may be given up "
      "(DependencyNeverSatisfied) before the failed one is restarted; rearm_child gives the dependency back where that can be done (docs/slurm.md)."
      " An EpilogSlurmctld, while it runs, keeps Slurm from it.",
      "Nothing, where no job depends on another. Else hold the dependents until the parent is done, or give the parent's exit codes to RequeueExitHold."),
    K(MESSAGE_TIMEOUT_LONG, WARNING, "Slurm's tools wait longer for slurmctld (MessageTimeout) than the agent waits for them.",
      "When slurmctld is busy the agent kills commands that would still be answered; whether they took effect is then unknown.",
      "A longer `scheduler.command_deadline` (with `scheduler.landing_bound` it must fit into the control plane's agent.lease), or MessageTimeout=10."),
    K(OUTPUT_TRUNCATED, NOTE, "A restarted job begins its output file anew (JobFileAppend=0).", "The failed attempt's log is gone for people once the job runs again.",
      "JobFileAppend=1 in slurm.conf, or `#SBATCH --open-mode=append` in jobs that opt in."),

    /* clocks */
    K(CLOCK_SKEW, WARNING, "This host's clock and slurmctld's differ.", "Times in what is told are off, and less is left of the 10 s that our credentials live.",
      "Set both by NTP: `chronyc tracking` or `timedatectl` on both."),
    K(CLOCK_SKEW_LARGE, FAULT, "This host's clock and slurmctld's are far apart.",
      "Our commands' credentials live for 10 s: with such a difference they are refused, or land later than the agent believes possible.",
      "Set both by NTP: `chronyc tracking` or `timedatectl` on both."),
    K(CLOCK_NOT_SYNCED, NOTE, "The kernel says that nobody keeps this host's clock.", "It drifts, until times and credentials are off.",
      "Run chrony or systemd-timesyncd. (Without `rtcsync`, and in some virtual machines, the kernel says so although it is kept.)"),
    K(CLOCK_STEPPED, WARNING, "This host's clock was set while the doctor looked.", "The agent waits by another clock, but what is told has wrong times.",
      "Let NTP slew the clock: chrony's `makestep` for the first minutes alone."),
    K(CLOCK_WENT_BACK, WARNING, "The journal has steps of the future: this host's clock was set back.",
      "Steps of the last hour are counted wrongly for the ceiling, and holds end later than they should.",
      "Check `timedatectl`; if the clock is right now it passes by itself."),
    K(NODE_CLOCK_AHEAD, WARNING, "A node's clock is ahead of slurmctld's.", "The node's log lines seem to come after what they explain, and munge may refuse the node.",
      "Set the node's clock by NTP."),

    /* logs */
    K(TAIL_HELPER_MISSING, FAULT, "The helper that reads output files is not there.", "No logs: hangs, stragglers and most causes are not seen.",
      "Install it (`meson install`), or set `tail.helper`; `tail.enabled: false` if no logs are to be read."),
    K(TAIL_HELPER_NOT_RUNNABLE, FAULT, "The agent's user may not run the helper that reads output files.",
      "No logs: hangs, stragglers and most causes are not seen.", "`chown root:GROUP HELPER && chmod 4750 HELPER`, GROUP the agent's (docs/install.md)."),
    K(TAIL_HELPER_NO_RIGHTS, FAULT, "The helper that reads output files cannot become the jobs' owners.",
      "No logs of others: hangs, stragglers and most causes are not seen.",
      "`chown root:GROUP HELPER && chmod 4750 HELPER`, again after each install; not on a file system that is mounted nosuid, and no NoNewPrivileges= "
      "in the agent's unit."),
    K(TAIL_HELPER_ODD, FAULT, "The helper that reads output files does not work.", "No logs: hangs, stragglers and most causes are not seen.",
      "It has to be of the agent's release, and a program of this machine: install both again."),
    K(TAIL_HELPER_FOR_ALL, WARNING, "Anybody may run the helper, which is setuid root.", "None for Advisor; users of this host could read each other's output with it.",
      "`chown root:GROUP HELPER && chmod 4750 HELPER`, GROUP the agent's."),
    K(TAIL_OFF, NOTE, "Output files are not read (tail.enabled: false).", "Hangs and stragglers are not seen, and causes only where logs come from elsewhere.",
      "Set it to true, or bring logs by OTLP, Loki or VictoriaLogs (docs/sources.md)."),
    K(OUTPUT_UNREADABLE, FAULT, "The output of a running job cannot be read here with its owner's rights.", "The job's log counts as lost: no hang, no cause.",
      "As the job's owner on this host, try `head -c1 FILE`; mount the file system as on the nodes, with root squashing that lets users in."),
    K(OUTPUT_NOT_HERE, WARNING, "The output of a running job is not on this host.", "The job's log counts as lost: no hang, no cause.",
      "Mount the nodes' file system here under the same path. Output on a node's own disk cannot be read from here: have jobs write to a shared one, or "
      "bring the logs by OTLP, Loki or VictoriaLogs (docs/sources.md)."),
    K(OUTPUT_HANGS, FAULT, "Looking at the output of a running job hangs.", "The job's log counts as lost; the helper is killed each time.",
      "Mend or remove the mount: `df FILE` hangs as well."),
    K(OUTPUT_NODE_LOCAL, WARNING, "The output of a running job lies on a disk of this host, but another host writes it.",
      "Unless this host exports it, the file that is here is not the job's: its log may be of another job, or stand still.",
      "Mount the nodes' file system here under the same path, or have jobs write to a shared one; nothing, if this host exports it to the nodes."),

    /* the state folder */
    K(STATE_DIR_MISSING, FAULT, "The state folder is not there and cannot be made.", "The agent does not start.", "`install -d -o USER -m 700 DIR`, USER the agent's."),
    K(STATE_DIR_NOT_WRITABLE, FAULT, "The agent's user cannot write to the state folder.", "The agent does not start.",
      "`chown -R USER DIR && chmod 700 DIR`"),
    K(STATE_DIR_OPEN, WARNING, "Others may write to the state folder.", "Whoever can may have the agent believe that it holds jobs, and give them back.",
      "`chmod 700 DIR`"),
    K(STATE_DIR_VOLATILE, FAULT, "The state folder does not survive a crash of this host.",
      "The agent never acts: it could not know afterwards what it had done.", "Set `state.dir` to a folder on a disk."),
    K(DISK_FULL, FAULT, "The state folder's disk is full.", "No step can be written down, so none is done.", "Make room: `df -h DIR`."),
    K(DISK_NEARLY_FULL, WARNING, "The state folder's disk is nearly full.", "When it is full no step can be written down, and none is done.",
      "Make room: `df -h DIR`."),
    K(JOURNAL_DAMAGED, FAULT, "The journal is damaged.", "The agent never acts; what it holds is given back by people alone.",
      "Stop the agent. Release or cancel what it held and no other job: `advisorctl audit` tells what it did. `squeue -t PD -o '%i %r'` lists what is held "
      "(`job requeued in held state`), by whomever: ask the owners of the others. Then move the journal away (`mv DIR/journal DIR/journal.damaged`), "
      "start the agent."),
    K(JOURNAL_UNREADABLE, WARNING, "The journal cannot be read.", "If the agent cannot either it does not start.", "`chown -R USER DIR`"),
    K(STEPS_OPEN, WARNING, "No agent runs, and the journal has steps whose outcome is not known.", "Jobs may be held that nobody looks after.",
      "Start the agent: it finds out, and goes on or gives them back."),
    K(HOLDS_UNATTENDED, WARNING, "No agent runs, and jobs are held.", "They wait until the agent or the watchdog gives them back.",
      "Start the agent (`systemctl start advisor-agent`), or advisor-watchdog."),
    K(DUPLICATE_AGENT, WARNING, "Another agent of this cluster runs on this host with another state folder.",
      "Only one of them has the lease; what the other one did before is in a journal that this one does not read.",
      "Stop one of them, and keep one unit and one state folder."),

    /* consent */
    K(CEILING_NOT_SET, WARNING, "There is no ceiling file.", "What the agent may do is up to the control plane alone.",
      "If there is none yet, write `mode: observe` into /etc/advisor/ceiling.yaml as root (mode 644); set `ceiling.path` to it."),
    K(CEILING_UNUSABLE, FAULT, "The ceiling file cannot be used.", "It counts as mode off: nothing is done.",
      "It has to be a file of root (or `ceiling.owner`) that nobody else can write: `chown root FILE && chmod 644 FILE`; docs/install.md has what it may "
      "say."),
    K(CEILING_OFF, NOTE, "The ceiling file says off.", "Nothing is done, whatever the control plane says.", "`mode: observe`, `approve` or `act` in it, when that is wanted."),
    K(JOB_COMMENT_MALFORMED, WARNING, "Comments of jobs speak of Advisor and cannot be understood.", "Those jobs are not looked after: a comment is never guessed at.",
      "`scontrol show job ID` shows it; its owner writes it again as docs/policy.md has it."),

    /* control plane */
    K(NOT_ENROLLED, FAULT, "There is no certificate of this agent.", "The control plane does not let the agent in.",
      "`advisorctl cluster enrol NAME` by an administrator, then here, as the agent's user: `advisor-agent --config FILE --enrol BUNDLE`."),
    K(CERT_UNREADABLE, FAULT, "The agent's certificate cannot be read.", "The agent cannot connect.", "Enrol anew, or `chown USER FILE`."),
    K(CERT_EXPIRED, FAULT, "The agent's certificate has expired.", "The control plane does not let the agent in.",
      "Enrol anew: `advisorctl cluster enrol NAME`, then `advisor-agent --config FILE --enrol BUNDLE`."),
    K(CERT_NOT_YET_VALID, FAULT, "The agent's certificate is of the future.", "The control plane may not let the agent in; one of the clocks is wrong.",
      "Set this host's clock by NTP."),
    K(CERT_NEAR_EXPIRY, WARNING, "The agent's certificate expires soon and was not renewed.", "After that the control plane does not let the agent in.",
      "Look why the agent does not renew it (its log says `renew`), or enrol anew."),
    K(CERT_OTHER_CLUSTER, FAULT, "The certificate is not of this cluster's agent.", "The control plane does not let the agent in as this cluster's.",
      "Set `cluster` to the name in the certificate, or enrol for this cluster."),
    K(KEY_EXPOSED, WARNING, "Others can read or change the agent's private key.", "Whoever has it can be the agent.",
      "`chmod 600 KEY`; if somebody may have read it: `advisorctl cluster revoke`, and enrol anew."),
    K(CERT_NOT_RENEWABLE, WARNING, "The agent cannot replace its certificate.", "It cannot be renewed: some day it expires.",
      "`chown USER` the folders of tls.cert and tls.key, or set `tls.renew: false` where something else renews it."),
    K(CONTROL_PLANE_UNREACHABLE, FAULT, "The control plane cannot be reached.", "Nothing is judged or done; the watchdog gives back what is held.",
      "Check `control_plane.target`, that advisord runs there, and firewalls between."),
    K(CONTROL_PLANE_TLS, FAULT, "The control plane and the agent do not accept each other's certificates.", "Nothing is judged or done.",
      "The control plane's certificate must be of `tls.ca` and for `control_plane.server_name` (or the target's host), ours of its agents' authority and "
      "not revoked; both clocks must be right."),
    K(CONTROL_PLANE_REFUSES, FAULT, "The control plane does not take this certificate for an agent's.", "Nothing is judged or done.",
      "An agent's certificate has the URI name advisor:agent:CLUSTER: enrol (`advisorctl cluster enrol NAME`); or `control_plane.target` is not advisord."),
    K(CONTROL_PLANE_PLAIN, NOTE, "The connection to the control plane is not encrypted (control_plane.insecure).", "Whoever is on this host can be the agent.",
      "Set it to false, and enrol."),
};

const struct doctor_kind *doctor_kinds(size_t *ret_n)
{
    *ret_n = KINDS;
    return kinds;
}

/* ---- collecting ---- */

/* @cure NULL: the general one. */
static void add(struct doctor_findings *out, enum kind k, enum doctor_sure sure, const char *cure, const char *fmt, ...) ADV_PRINTF(5, 6);
static void add(struct doctor_findings *out, enum kind k, enum doctor_sure sure, const char *cure, const char *fmt, ...)
{
    struct doctor_finding *f;
    va_list ap;

    if (out->n == DOCTOR_FINDINGS_MAX)
        return;
    f = &out->list[out->n++];
    f->kind = &kinds[k];
    f->sure = sure;
    va_start(ap, fmt);
    (void) vsnprintf(f->what, sizeof(f->what), fmt, ap);
    va_end(ap);
    (void) snprintf(f->cure, sizeof(f->cure), "%s", cure ? cure : kinds[k].cure);
}

static void unchecked(struct doctor_findings *out, const char *check, const char *fmt, ...) ADV_PRINTF(3, 4);
static void unchecked(struct doctor_findings *out, const char *check, const char *fmt, ...)
{
    va_list ap;

    if (out->n_unchecked == DOCTOR_UNCHECKED_MAX)
        return;
    out->unchecked[out->n_unchecked].check = check;
    va_start(ap, fmt);
    (void) vsnprintf(out->unchecked[out->n_unchecked++].why, DOCTOR_SAID_SIZE, fmt, ap);
    va_end(ap);
}

/* A cure with names in it, for add(). */
struct cure {
    char text[640];
};
static const char *cure(struct cure *c, const char *fmt, ...) ADV_PRINTF(2, 3);
static const char *cure(struct cure *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(c->text, sizeof(c->text), fmt, ap);
    va_end(ap);
    return c->text;
}

static const char *or_words(const char *said, const char *otherwise)
{
    return said[0] ? said : otherwise;
}

/* Why an answer is none. */
static const char *why_not(const struct doctor_answer *a)
{
    switch (a->end) {
    case DOCTOR_NOT_ASKED:
        return "it was not asked";
    case DOCTOR_SILENT:
        return "no answer in time";
    case DOCTOR_NO_TOOL:
        return "the tool could not be run";
    case DOCTOR_TOO_MUCH:
        return "it printed too much";
    default:
        return or_words(a->said, "it said nothing");
    }
}

/* ---- Slurm ---- */

/* True when slurmctld can be asked. */
static bool judge_reach(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;
    const struct doctor_answer *p = &s->ping;
    struct cure c;

    if (s->conf_code && s->no_conf) {
        add(out, NO_SLURM_CONF, DOCTOR_SURE, NULL, "%s", or_words(s->conf_said, "There is no slurm.conf on this host."));
        return false;
    }
    if (s->conf_code) {
        add(out, SLURM_CONF_UNREADABLE, DOCTOR_SURE, NULL, "slurm.conf cannot be used: %s", s->conf_said);
        return false;
    }
    if (s->tools_missing[0])
        add(out, SLURM_TOOLS_MISSING, DOCTOR_SURE, NULL, "Not to be run %s%s: %s.", f->bin_dir[0] ? "from " : "by PATH", f->bin_dir, s->tools_missing);
    if (p->end == DOCTOR_NO_TOOL || p->end == DOCTOR_NOT_ASKED)
        return false;
    switch (p->complaint) {
    case DOCTOR_BAD_CONF:
        add(out, SLURM_CONF_BAD, DOCTOR_SURE, NULL, "Slurm's tools do not understand %s: %s", or_words(s->conf_source, "slurm.conf"), p->said);
        return false;
    case DOCTOR_NO_MUNGE:
        add(out, MUNGE_DOWN, DOCTOR_SURE, NULL, "munged does not answer: %s", p->said);
        return false;
    case DOCTOR_BAD_CREDENTIAL:
        if (s->ping_own_conf.end == DOCTOR_ANSWERED)
            add(out, SHORT_TTL_REFUSED, DOCTOR_LIKELY, NULL, "slurmctld takes a usual credential of ours, and none that lives for 10 s: %s", p->said);
        else
            add(out, CREDENTIAL_REFUSED, DOCTOR_SURE, NULL, "slurmctld takes no credential of this host: %s", p->said);
        return false;
    default:
        break;
    }
    if (p->end == DOCTOR_ANSWERED) {
        if (s->controllers_down[0])
            add(out, SLURMCTLD_BACKUP_DOWN, DOCTOR_SURE, NULL, "Down: %s.", s->controllers_down);
        return true;
    }
    if (s->ping_own_conf.end == DOCTOR_ANSWERED) {
        add(out, SHORT_TTL_REFUSED, DOCTOR_LIKELY, NULL, "slurmctld answers with the site's slurm.conf, and not with our copy, whose credentials live for 10 s.");
        return false;
    }
    if (p->end == DOCTOR_SILENT || p->took_ms >= SILENT_MS)
        add(out, SLURMCTLD_SILENT, p->end == DOCTOR_SILENT ? DOCTOR_SURE : DOCTOR_LIKELY, NULL, "slurmctld has not answered `scontrol ping` within %.1f s%s%s",
            (double) p->took_ms / 1000, p->said[0] ? ": " : ".", p->said);
    else if (p->end == DOCTOR_TOO_MUCH)
        add(out, ANSWER_UNREADABLE, DOCTOR_SURE, NULL, "`scontrol ping` printed more than it ever does.");
    else
        add(out, SLURMCTLD_DOWN, DOCTOR_SURE,
            cure(&c, "Start it (`systemctl start slurmctld` on its host), and check SlurmctldHost and SlurmctldPort in %.300s, and firewalls between.",
                 or_words(s->conf_source, "slurm.conf")),
            "slurmctld is not there: %s", or_words(p->said, "`scontrol ping` finds none"));
    return false;
}

static void judge_rights(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;
    const char *who = f->slurm_user_name;
    struct cure c;

    if (s->superuser || s->privilege == ADAPTER_PRIVILEGE_ADMIN) {
        add(out, MORE_RIGHTS_THAN_NEEDED, DOCTOR_SURE,
            s->superuser ? "Run the agent as a user of its own with AdminLevel=Operator (docs/install.md)."
                         : cure(&c, "`sacctmgr modify user %s set adminlevel=Operator`", who),
            "%s is %s: Operator is enough.", who, s->superuser ? "Slurm's own or the machine's superuser" : "Administrator in Slurm");
    } else if (s->privilege == ADAPTER_PRIVILEGE_NONE || s->user_unknown) {
        bool hidden = s->set.private_jobs == DOCTOR_YES;

        if (s->user_unknown)
            (void) cure(&c, "`sacctmgr add user %s account=root adminlevel=Operator` (root, or another account that the site has)", who);
        else
            (void) cure(&c, "`sacctmgr modify user %s set adminlevel=Operator`", who);
        add(out, OPERATOR_MISSING, DOCTOR_SURE, c.text, "%s %s: it may not act on others' jobs.", who,
            s->user_unknown ? "is not known to slurmctld" : "has AdminLevel=None");
        if (hidden)
            add(out, JOBS_HIDDEN, DOCTOR_SURE, c.text, "PrivateData hides others' jobs from %s.", who);
    } else if (s->privilege == ADAPTER_PRIVILEGE_UNKNOWN) {
        add(out, RIGHTS_UNKNOWN, DOCTOR_MAYBE, cure(&c, "Run `scontrol -o show assoc_mgr flags=users users=%s` as %s; it should end with AdminLevel=Operator.", who, who),
            "slurmctld did not tell what %s may do: %s.", who,
            s->assoc.end == DOCTOR_ANSWERED ? "its answer has no such user in it" : why_not(&s->assoc));
    }
}

static void judge_job_age(const struct doctor_facts *f, struct doctor_findings *out)
{
    int64_t age = f->slurm.set.min_job_age_s, twice = (2 * f->poll_ms + 999) / 1000;
    int64_t least = 3 * UNDECIDED_S > 2 * twice ? 3 * UNDECIDED_S : 2 * twice;
    struct cure c;

    if (age < 0)
        unchecked(out, "MinJobAge", "`scontrol show config` does not have it");
    else if (age == 0)
        add(out, MIN_JOB_AGE_ZERO, DOCTOR_SURE, NULL, "MinJobAge is 0: slurmctld never forgets ended jobs.");
    else if (age <= twice)
        add(out, MIN_JOB_AGE_BELOW_POLL, DOCTOR_SURE,
            cure(&c, "MinJobAge=300 in slurm.conf and `scontrol reconfigure`, or `poll.interval` of at most %lld s.", (long long) (age / 4 ? age / 4 : 1)),
            "MinJobAge is %lld s, and the agent looks every %.1f s: ended jobs are forgotten before it has looked twice.", (long long) age,
            (double) f->poll_ms / 1000);
    else if (age < least)
        add(out, MIN_JOB_AGE_SHORT, DOCTOR_SURE, NULL, "MinJobAge is %lld s, expected at least %lld s.", (long long) age, (long long) least);
}

static void judge_settings(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;
    const struct doctor_settings *c = &s->set;
    unsigned ours = doctor_release(s->client_version), theirs = doctor_release(c->version);
    struct cure cu;

    if (theirs && (theirs < OLDEST_RELEASE || theirs > NEWEST_RELEASE))
        add(out, VERSION_UNTRIED, DOCTOR_SURE, NULL, "slurmctld is of release %s; the adapter was measured on 22.05, 24.11 and 26.05.", c->version);
    if (ours && theirs && ours > theirs)
        add(out, CLIENT_NEWER, DOCTOR_SURE, NULL, "The tools here are of release %s, slurmctld of %s.", s->client_version, c->version);
    if (c->auth_type[0] && !adv_streq(c->auth_type, "auth/munge"))
        add(out, AUTH_NOT_MUNGE, DOCTOR_SURE, NULL, "AuthType is %s.", c->auth_type);
    if (c->rate_limit == DOCTOR_YES)
        add(out, RATE_LIMITED, DOCTOR_SURE, NULL, "SlurmctldParameters has rl_enable.");
    if (f->cluster[0] && strcasecmp(f->cluster, c->cluster) != 0)
        add(out, CLUSTER_NAME_DIFFERS, DOCTOR_SURE, NULL, "It is %s in Slurm (ClusterName) and %s in Advisor (`cluster`).", c->cluster, f->cluster);

    judge_job_age(f, out);
    if (c->job_requeue == DOCTOR_NO)
        add(out, JOB_REQUEUE_OFF, DOCTOR_SURE, NULL, "JobRequeue is 0.");
    if (c->requeue_both[0])
        add(out, REQUEUE_EXIT_OVERLAP, DOCTOR_SURE,
            cure(&cu, "Take %s out of RequeueExit=%s or out of RequeueExitHold=%s, then `scontrol reconfigure`.", c->requeue_both, c->requeue_exit,
                 c->requeue_exit_hold),
            "Exit code %s is in RequeueExit (%s) and in RequeueExitHold (%s).", c->requeue_both, c->requeue_exit, c->requeue_exit_hold);
    if (c->requeue_exit[0] || c->requeue_exit_hold[0])
        add(out, REQUEUE_EXIT_SET, DOCTOR_SURE, NULL, "RequeueExit is %s, RequeueExitHold is %s.", or_words(c->requeue_exit, "not set"),
            or_words(c->requeue_exit_hold, "not set"));
    if (c->kill_wait_s * 1000 >= f->action_deadline_ms)
        add(out, KILL_WAIT_LONG, DOCTOR_SURE,
            cure(&cu, "KillWait=30 (Slurm's default), or `scheduler.action_deadline: %llds`.", (long long) (c->kill_wait_s + 60)),
            "KillWait is %lld s, `scheduler.action_deadline` %lld s.", (long long) c->kill_wait_s, (long long) (f->action_deadline_ms / 1000));
    if (c->complete_wait_s > COMPLETE_WAIT_S)
        add(out, COMPLETE_WAIT_LONG, DOCTOR_SURE, NULL, "CompleteWait is %lld s.", (long long) c->complete_wait_s);
    if (c->inactive_limit_s > 0)
        add(out, INACTIVE_LIMIT_SET, DOCTOR_SURE, NULL, "InactiveLimit is %lld s.", (long long) c->inactive_limit_s);
    if (c->message_timeout_s * 1000 >= f->command_deadline_ms)
        add(out, MESSAGE_TIMEOUT_LONG, DOCTOR_SURE,
            cure(&cu, "`scheduler.command_deadline: %llds` (with `scheduler.landing_bound` it must fit into the control plane's agent.lease), or MessageTimeout=10.",
                 (long long) (c->message_timeout_s + 2)),
            "MessageTimeout is %lld s, `scheduler.command_deadline` %lld s.", (long long) c->message_timeout_s, (long long) (f->command_deadline_ms / 1000));
    if (c->node_epilog == DOCTOR_YES)
        add(out, NODE_EPILOG_SET, DOCTOR_SURE, NULL, "Epilog is set.");
    if (c->ctld_epilog == DOCTOR_NO)
        add(out, CTLD_EPILOG_ABSENT, DOCTOR_SURE, NULL, "EpilogSlurmctld is not set.");
    if (c->file_append == DOCTOR_NO)
        add(out, OUTPUT_TRUNCATED, DOCTOR_SURE, NULL, "JobFileAppend is 0.");
}

static void judge_accounting(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;

    if (s->set.known && !strstr(s->set.accounting_type, "slurmdbd")) {
        add(out, ACCOUNTING_ABSENT, s->set.accounting_type[0] ? DOCTOR_SURE : DOCTOR_LIKELY, NULL, "AccountingStorageType is %s.",
            or_words(s->set.accounting_type, "not set"));
        return;
    }
    if (s->set.known && s->set.store_comment == DOCTOR_NO)
        add(out, ACCOUNTING_NO_COMMENT, DOCTOR_SURE, NULL, "AccountingStoreFlags has no job_comment.");
    if (s->accounting.complaint == DOCTOR_NO_MUNGE || s->accounting.complaint == DOCTOR_BAD_CONF)
        unchecked(out, "slurmdbd", "%s", why_not(&s->accounting)); /* told already */
    else if (s->accounting.end == DOCTOR_REFUSED || s->accounting.end == DOCTOR_SILENT)
        add(out, SLURMDBD_UNREACHABLE, s->accounting.complaint == DOCTOR_NO_DBD || s->accounting.complaint == DOCTOR_NO_CONTACT ? DOCTOR_SURE : DOCTOR_LIKELY,
            NULL, "`sacct` gets no answer of slurmdbd: %s", why_not(&s->accounting));
    else if (s->accounting.end != DOCTOR_ANSWERED)
        unchecked(out, "slurmdbd", "%s", why_not(&s->accounting));
}

static void judge_clocks(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;

    if (s->skew_known == DOCTOR_YES) {
        int64_t apart = s->skew_ms < 0 ? -s->skew_ms : s->skew_ms;
        const char *way = s->skew_ms > 0 ? "ahead of" : "behind";

        apart -= s->skew_sharp_ms; /* what is certain of it */
        if (apart >= SKEW_FAULT_MS)
            add(out, CLOCK_SKEW_LARGE, DOCTOR_SURE, NULL, "slurmctld's clock is at least %.1f s %s this host's.", (double) apart / 1000, way);
        else if (apart >= SKEW_WARN_MS)
            add(out, CLOCK_SKEW, DOCTOR_SURE, NULL, "slurmctld's clock is at least %.1f s %s this host's.", (double) apart / 1000, way);
    } else {
        unchecked(out, "clock of slurmctld", "%s", s->stats.end == DOCTOR_ANSWERED ? "`sdiag` does not tell it" : why_not(&s->stats));
    }
    if (s->node_ahead[0] && s->node_ahead_s >= NODE_AHEAD_S)
        add(out, NODE_CLOCK_AHEAD, DOCTOR_LIKELY, NULL, "%s says that its slurmd started %lld s from now.", s->node_ahead, (long long) s->node_ahead_s);
}

static void judge_outputs(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;
    size_t tried = 0;

    for (size_t i = 0; i < s->n_outputs; i++) {
        const struct doctor_output *o = &s->outputs[i];
        char path[400];

        if (!o->path[0])
            continue;
        doctor_clean(path, sizeof(path), o->path, strlen(o->path));
        tried += o->state != DOCTOR_OUTPUT_NOT_TRIED;
        switch (o->state) {
        case DOCTOR_OUTPUT_ABSENT:
            add(out, OUTPUT_NOT_HERE, DOCTOR_LIKELY, NULL, "Job %s of %s writes to %s on %s; there is no such file here.", o->job, o->user, path,
                or_words(o->first_node, "its node"));
            break;
        case DOCTOR_OUTPUT_DENIED:
            add(out, OUTPUT_UNREADABLE, DOCTOR_SURE, NULL, "Job %s of %s writes to %s, which its owner cannot read here: %s.", o->job, o->user, path,
                or_words(o->said, "no reason told"));
            break;
        case DOCTOR_OUTPUT_HUNG:
            add(out, OUTPUT_HANGS, DOCTOR_LIKELY, NULL, "Job %s of %s writes to %s; opening it here did not end in time.", o->job, o->user, path);
            break;
        case DOCTOR_OUTPUT_READABLE:
            if (o->elsewhere == DOCTOR_YES && o->network == DOCTOR_NO)
                add(out, OUTPUT_NODE_LOCAL, DOCTOR_MAYBE, NULL, "Job %s of %s writes to %s on %s; the file of that name here lies on a disk of this host.",
                    o->job, o->user, path, or_words(o->first_node, "its node"));
            break;
        case DOCTOR_OUTPUT_NO_LOG: /* that is its owner's wish */
        case DOCTOR_OUTPUT_NOT_TRIED:
            break;
        }
    }
    if (f->host.tail_on && !tried)
        unchecked(out, "output files", s->n_running ? "none of the running jobs' could be tried" : "no batch job is running");
}

static void judge_slurm(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_slurm *s = &f->slurm;
    bool reached = judge_reach(f, out);

    if (!reached)
        unchecked(out, "Slurm's settings, rights, jobs and nodes", "slurmctld could not be asked");
    if (!reached && (s->accounting.end == DOCTOR_NOT_ASKED || s->accounting.end == DOCTOR_NO_TOOL)) {
        unchecked(out, "slurmdbd", "%s", why_not(&s->accounting));
        return;
    }
    judge_accounting(f, out);
    if (!reached)
        return;

    int64_t slowest = s->ping.took_ms;
    const char *slow = "scontrol ping";
    if (s->config.took_ms > slowest)
        slowest = s->config.took_ms, slow = "scontrol show config";
    if (s->jobs.took_ms > slowest)
        slowest = s->jobs.took_ms, slow = "squeue";
    if (slowest >= SLOW_MS)
        add(out, SLURMCTLD_SLOW, DOCTOR_LIKELY, NULL, "`%s` took %.1f s.", slow, (double) slowest / 1000);

    if (s->set.known)
        judge_settings(f, out);
    else if (s->config.end == DOCTOR_ANSWERED)
        add(out, ANSWER_UNREADABLE, DOCTOR_SURE, "Run `scontrol show config` by hand: there should be a line `ClusterName = ...` in it.",
            "`scontrol show config` has no ClusterName in it.");
    else
        unchecked(out, "Slurm's settings", "%s", why_not(&s->config));
    if (f->host.other_user && (s->user_unknown || s->superuser || (s->assoc.end == DOCTOR_ANSWERED && s->privilege == ADAPTER_PRIVILEGE_UNKNOWN)))
        unchecked(out, "rights in Slurm", "of %s: seen as %s", f->slurm_user_name, f->host.me); /* it may only be hidden; a folder of root is no agent of root */
    else if (s->assoc.end == DOCTOR_NOT_ASKED && !s->superuser)
        unchecked(out, "rights in Slurm", "%s", why_not(&s->assoc));
    else
        judge_rights(f, out);
    judge_clocks(f, out);

    if (s->jobs.end == DOCTOR_NOT_ASKED)
        unchecked(out, "list of jobs", "it was not asked");
    else if (!s->jobs_read)
        add(out, JOB_LIST_UNREADABLE, DOCTOR_SURE, "Run `squeue -a -t all` by hand, as the agent's user, and mend what it complains of.",
            "`squeue` gives no list that can be used: %s", or_words(s->jobs_why, why_not(&s->jobs)));
    if (s->n_comments) {
        char some[400] = "";
        size_t used = 0;
        struct cure c;

        for (size_t i = 0; i < s->n_comments && i < DOCTOR_COMMENTS_MAX && used < sizeof(some) - 1; i++) {
            int n = snprintf(some + used, sizeof(some) - used, "%s%s (%.60s)", i ? ", " : "", s->comments[i].job, s->comments[i].why);
            used += n > 0 ? (size_t) n : 0;
        }
        add(out, JOB_COMMENT_MALFORMED, DOCTOR_SURE,
            cure(&c, "`scontrol show job %s` shows it; its owner writes it again as docs/policy.md has it.", s->comments[0].job),
            "%zu of the live jobs: %s%s", s->n_comments, some, s->n_comments > DOCTOR_COMMENTS_MAX ? ", ..." : "");
    }
    if (s->sample.end != DOCTOR_ANSWERED)
        unchecked(out, "comments of jobs", "%s", why_not(&s->sample));
    judge_outputs(f, out);
    if (s->federation_name[0])
        add(out, FEDERATED, DOCTOR_SURE, NULL, "The cluster is a member of federation %s.", s->federation_name);
    else if (s->federation.end != DOCTOR_ANSWERED)
        unchecked(out, "federation", "%s", why_not(&s->federation));
    if (s->n_clusters > 1)
        add(out, SEVERAL_CLUSTERS, DOCTOR_SURE, NULL, "The accounting database knows %zu clusters.", s->n_clusters);
}

/* ---- this host ---- */

static void judge_folder(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_host *h = &f->host;
    const char *dir = h->state_dir;
    struct cure c;

    if (h->dir_exists == DOCTOR_NO) {
        if (h->dir_creatable == DOCTOR_NO)
            add(out, STATE_DIR_MISSING, DOCTOR_SURE, cure(&c, "`install -d -o USER -m 700 %s`, USER the agent's.", dir), "%s is not there, and %s cannot make it.", dir,
                h->me);
        else
            unchecked(out, "state folder", "%s is not there yet: the agent makes it", dir);
        return;
    }
    if (h->dir_exists != DOCTOR_YES) {
        unchecked(out, "state folder", "%s cannot be looked at", dir);
        return;
    }
    if (h->dir_writable == DOCTOR_NO && h->other_user)
        unchecked(out, "state folder", "not looked into (seen as %s)", h->me);
    else if (h->dir_writable == DOCTOR_NO)
        add(out, STATE_DIR_NOT_WRITABLE, DOCTOR_SURE, cure(&c, "`chown -R %s %s && chmod 700 %s`", h->me, dir, dir), "%s cannot write to %s.", h->me, dir);
    if (h->dir_open)
        add(out, STATE_DIR_OPEN, DOCTOR_SURE, cure(&c, "`chmod 700 %s`", dir), "%s has mode %03o: others may write there.", dir, h->dir_mode);
    if (h->dir_lasting == DOCTOR_NO)
        add(out, STATE_DIR_VOLATILE, DOCTOR_SURE, NULL, "%s is on tmpfs or in a container's overlay.", dir);
    if (h->free_bytes >= 0 && h->free_bytes < DISK_FULL_BYTES)
        add(out, DISK_FULL, DOCTOR_SURE, cure(&c, "Make room: `df -h %s`.", dir), "%lld kB are left for %s.", (long long) (h->free_bytes / 1024), dir);
    else if (h->free_bytes >= 0 && h->free_bytes < DISK_LOW_BYTES)
        add(out, DISK_NEARLY_FULL, DOCTOR_SURE, cure(&c, "Make room: `df -h %s`.", dir), "%lld MB are left for %s.", (long long) (h->free_bytes >> 20), dir);
    if (h->journal_code == -ADV_DATA_LOSS)
        add(out, JOURNAL_DAMAGED, DOCTOR_SURE,
            strlen(dir) > 100 ? NULL : /* half a path is worse than none */
            cure(&c, "Stop the agent. Release or cancel what it held and no other job: `advisorctl audit` tells what it did. `squeue -t PD -o '%%i %%r'` lists "
                     "what is held (`job requeued in held state`), by whomever: ask the owners of the others. Then `mv %s/journal %s/journal.damaged`, "
                     "start the agent.", dir, dir),
            "%s/journal: %s", dir, h->journal_said);
    else if (h->journal_code && h->journal_code != -ADV_NOT_FOUND && h->other_user)
        unchecked(out, "journal", "not looked at (seen as %s): %s", h->me, h->journal_said);
    else if (h->journal_code && h->journal_code != -ADV_NOT_FOUND)
        add(out, JOURNAL_UNREADABLE, DOCTOR_SURE, cure(&c, "`chown -R %s %s`", h->me, dir), "%s/journal: %s", dir, h->journal_said);
    if (h->agent_runs == DOCTOR_NO && h->holds)
        add(out, HOLDS_UNATTENDED, DOCTOR_SURE, NULL, "No agent has %s, and its journal has %zu held job(s).", dir, h->holds);
    if (h->agent_runs == DOCTOR_NO && h->open_steps)
        add(out, STEPS_OPEN, DOCTOR_SURE, NULL, "No agent has %s, and its journal has %zu step(s) without outcome.", dir, h->open_steps);
    if (h->journal_ahead_s >= CLOCK_BACK_S)
        add(out, CLOCK_WENT_BACK, DOCTOR_LIKELY, NULL, "The newest step of the journal is %lld s from now.", (long long) h->journal_ahead_s);
    if (h->other_agent[0])
        add(out, DUPLICATE_AGENT, DOCTOR_LIKELY, NULL, "%s", h->other_agent);
}

/* Whose the state folder is: the agent's user, as far as that can be known. */
static const char *agent_user(const struct doctor_host *h)
{
    return h->other_user ? h->state_owner : h->me;
}

static void judge_helper(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_host *h = &f->host;
    const char *path = f->tail_helper;
    struct cure c;

    if (!h->tail_on) {
        add(out, TAIL_OFF, DOCTOR_SURE, NULL, "`tail.enabled` is false.");
        return;
    }
    if (h->helper_for_all)
        add(out, TAIL_HELPER_FOR_ALL, DOCTOR_SURE, cure(&c, "`chown root:$(id -gn %s) %s && chmod 4750 %s`", agent_user(h), path, path), "Anybody may run %s.", path);
    if (h->other_user && h->helper != DOCTOR_HELPER_MISSING) {
        unchecked(out, "helper for logs", "as the agent runs it: not looked at (seen as %s)", h->me);
        return;
    }
    switch (h->helper) {
    case DOCTOR_HELPER_MISSING:
        add(out, TAIL_HELPER_MISSING, DOCTOR_SURE, NULL, "There is no %s.", path);
        break;
    case DOCTOR_HELPER_NOT_OURS:
        add(out, TAIL_HELPER_NOT_RUNNABLE, DOCTOR_SURE, cure(&c, "`chown root:$(id -gn %s) %s && chmod 4750 %s`", h->me, path, path), "%s may not run %s.",
            h->me, path);
        break;
    case DOCTOR_HELPER_NO_RIGHTS:
        add(out, TAIL_HELPER_NO_RIGHTS, DOCTOR_SURE,
            cure(&c, "`chown root:$(id -gn %s) %s && chmod 4750 %s`, again after each install; not on a file system that is mounted nosuid, and no "
                     "NoNewPrivileges= in the agent's unit.", h->me, path, path),
            "%s cannot become a job's owner: %s", path, h->helper_said);
        break;
    case DOCTOR_HELPER_ODD:
        add(out, TAIL_HELPER_ODD, DOCTOR_SURE, NULL, "%s does not work: %s", path, h->helper_said);
        break;
    case DOCTOR_HELPER_NOT_TRIED:
        unchecked(out, "helper for logs", "it was not tried");
        break;
    case DOCTOR_HELPER_WORKS:
        break;
    }
}

static void judge_link(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_host *h = &f->host;
    int64_t left_s = h->cert_until_s - h->wall_s;
    struct cure c;

    if (!f->target[0]) {
        unchecked(out, "control plane", "none is configured (control_plane.target)");
        return;
    }
    if (h->insecure) {
        add(out, CONTROL_PLANE_PLAIN, DOCTOR_SURE, NULL, "`control_plane.insecure` is true.");
    } else if (h->cert_code == -ADV_NOT_FOUND) {
        add(out, NOT_ENROLLED, DOCTOR_SURE,
            cure(&c, "`advisorctl cluster enrol %s` by an administrator, then here, as the agent's user: `advisor-agent%s%s --enrol BUNDLE`.",
                 or_words(f->cluster, "NAME"), f->config_file[0] ? " --config " : "", f->config_file),
            "There is no %s.", f->tls_cert);
    } else if (h->cert_code && h->other_user) {
        unchecked(out, "certificate", "not looked at (seen as %s)", h->me);
    } else if (h->cert_code) {
        add(out, CERT_UNREADABLE, DOCTOR_SURE, NULL, "%s cannot be read as a certificate.", f->tls_cert);
    } else {
        if (left_s <= 0)
            add(out, CERT_EXPIRED, DOCTOR_SURE, NULL, "%s expired %.1f days ago.", f->tls_cert, (double) -left_s / 86400);
        else if (h->cert_from_s > h->wall_s)
            add(out, CERT_NOT_YET_VALID, DOCTOR_SURE, NULL, "%s is valid only from %lld s on from now.", f->tls_cert, (long long) (h->cert_from_s - h->wall_s));
        else if (left_s < CERT_SOON_S && left_s < (h->cert_until_s - h->cert_from_s) / 4) /* it is renewed when a third is left */
            add(out, CERT_NEAR_EXPIRY, DOCTOR_SURE, NULL, "%s expires in %.1f days.", f->tls_cert, (double) left_s / 86400);
        if (h->cert_named && f->cluster[0] && !adv_streq(h->cert_cluster, f->cluster))
            add(out, CERT_OTHER_CLUSTER, DOCTOR_SURE, NULL, "%s is of %s%s, this is cluster %s.", f->tls_cert, h->cert_cluster[0] ? "cluster " : "no agent",
                h->cert_cluster, f->cluster);
    }
    if (!h->insecure && h->cert_code != -ADV_NOT_FOUND) {
        if (h->key_mode)
            add(out, KEY_EXPOSED, DOCTOR_SURE, cure(&c, "`chmod 600 %s`; if somebody may have read it: `advisorctl cluster revoke`, and enrol anew.", f->tls_key),
                "%s has mode %03o.", f->tls_key, h->key_mode);
        if (f->renew && h->other_user)
            unchecked(out, "renewal of the certificate", "whether %s can write it: not looked at (seen as %s)", h->state_owner, h->me);
        else if (f->renew && h->renewable == DOCTOR_NO)
            add(out, CERT_NOT_RENEWABLE, DOCTOR_SURE, NULL, "%s cannot replace its certificate: %s", h->me, h->renew_said);
    }
    switch (h->link) {
    case DOCTOR_LINK_UNREACHABLE:
        add(out, CONTROL_PLANE_UNREACHABLE, DOCTOR_SURE, NULL, "%s cannot be reached: %s", f->target, h->link_said);
        break;
    case DOCTOR_LINK_TLS:
        add(out, CONTROL_PLANE_TLS, DOCTOR_SURE, NULL, "%s and this agent do not accept each other's certificates: %s", f->target, h->link_said);
        break;
    case DOCTOR_LINK_REFUSED:
        add(out, CONTROL_PLANE_REFUSES, DOCTOR_SURE, NULL, "%s does not take us for an agent: %s", f->target, h->link_said);
        break;
    case DOCTOR_LINK_FILES: /* told by what is wrong with them, unless nothing was found */
        if (h->other_user)
            unchecked(out, "connection to the control plane", "the agent's files: not looked at (seen as %s)", h->me);
        else if (!h->cert_code)
            add(out, CERT_UNREADABLE, DOCTOR_SURE, "Check tls.cert, tls.key and tls.ca: PEM files that the agent's user can read, the key that of the certificate.",
                "The agent's TLS files cannot be used: %s", h->link_said);
        break;
    case DOCTOR_LINK_NOT_TRIED:
        unchecked(out, "connection to the control plane", "%s", or_words(h->link_said, "it was not tried"));
        break;
    case DOCTOR_LINK_WORKS:
        break;
    }
}

static void judge_host(const struct doctor_facts *f, struct doctor_findings *out)
{
    const struct doctor_host *h = &f->host;
    struct cure c;

    if (h->config_error[0])
        add(out, AGENT_CONFIG_INVALID, DOCTOR_SURE, NULL, "%s", h->config_error);
    if (!h->config_error[0] && (h->no_cluster || h->no_target))
        add(out, AGENT_CONFIG_INCOMPLETE, DOCTOR_SURE,
            cure(&c, "Set %s%s%s in %s.", h->no_cluster ? "`cluster`" : "", h->no_cluster && h->no_target ? " and " : "",
                 h->no_target ? "`control_plane.target`" : "", or_words(f->config_file, "the agent's configuration (--agent-config FILE)")),
            "Not set: %s%s%s.", h->no_cluster ? "cluster" : "", h->no_cluster && h->no_target ? ", " : "", h->no_target ? "control_plane.target" : "");
    if (h->other_user)
        add(out, NOT_AGENT_USER, DOCTOR_LIKELY,
            cure(&c, "`runuser -u %s -- advisorctl doctor%s%s`. If the folder should be another's: `chown -R USER %s`, USER the agent's.", h->state_owner,
                 f->config_file[0] ? " --agent-config " : "", f->config_file, h->state_dir),
            "This was run as %s; %s belongs to %s.", h->me, h->state_dir, h->state_owner);
    judge_folder(f, out);
    if (!h->ceiling_set)
        add(out, CEILING_NOT_SET, DOCTOR_SURE, NULL, "`ceiling.path` is not set.");
    else if (!h->ceiling_known && h->other_user && h->uid)
        unchecked(out, "ceiling", "not to be read as %s: %s", h->me, h->ceiling_said);
    else if (!h->ceiling_known)
        add(out, CEILING_UNUSABLE, DOCTOR_SURE, NULL, "%s: %s", f->ceiling_path, h->ceiling_said);
    else if (h->ceiling_off)
        add(out, CEILING_OFF, DOCTOR_SURE, NULL, "%s says `mode: off`.", f->ceiling_path);
    judge_helper(f, out);
    if (h->clock_synced == DOCTOR_NO)
        add(out, CLOCK_NOT_SYNCED, DOCTOR_MAYBE, NULL, "The kernel says that this host's clock is not kept.");
    if (h->clock_stepped_ms >= STEP_MS || h->clock_stepped_ms <= -STEP_MS)
        add(out, CLOCK_STEPPED, DOCTOR_SURE, NULL, "This host's clock was set by %.1f s while the doctor looked.", (double) h->clock_stepped_ms / 1000);
    judge_link(f, out);
}

/* ---- all of it ---- */

void doctor_judge(const struct doctor_facts *f, struct doctor_findings *ret)
{
    ret->n = ret->n_unchecked = 0;
    if (f->host.defaults_only) { /* nothing that follows from a default is said of the site */
        add(ret, AGENT_CONFIG_INVALID, DOCTOR_SURE, NULL, "%s", or_words(f->host.config_error, "It cannot be read."));
        unchecked(ret, "all the rest", "the site's settings are not known before the configuration can be used");
        return;
    }
    judge_slurm(f, ret);
    judge_host(f, ret);
    if (f->out_of_time)
        unchecked(ret, "the rest", "the doctor's own time was over");

    /* faults first, else as they were found */
    for (size_t i = 1; i < ret->n; i++) {
        struct doctor_finding x = ret->list[i];
        size_t k = i;

        for (; k > 0 && ret->list[k - 1].kind->severity < x.kind->severity; k--)
            ret->list[k] = ret->list[k - 1];
        ret->list[k] = x;
    }
}

int doctor_exit_code(const struct doctor_findings *f)
{
    int worst = 0;

    for (size_t i = 0; i < f->n; i++)
        worst = (int) f->list[i].kind->severity > worst ? (int) f->list[i].kind->severity : worst;
    return worst;
}

const char *doctor_severity_name(enum doctor_severity s)
{
    return s == DOCTOR_FAULT ? "fault" : s == DOCTOR_WARNING ? "warning" : "note";
}

const char *doctor_sure_name(enum doctor_sure s)
{
    return s == DOCTOR_SURE ? "sure" : s == DOCTOR_LIKELY ? "likely" : "maybe";
}

enum doctor_tri doctor_may(const struct doctor_facts *f, enum adapter_verb verb)
{
    (void) verb; /* all of them need the same level (docs/doctor.md) */
    if (f->slurm.superuser || f->slurm.privilege == ADAPTER_PRIVILEGE_OPERATOR || f->slurm.privilege == ADAPTER_PRIVILEGE_ADMIN)
        return DOCTOR_YES;
    return f->slurm.privilege == ADAPTER_PRIVILEGE_NONE || f->slurm.user_unknown ? DOCTOR_NO : DOCTOR_UNKNOWN;
}
