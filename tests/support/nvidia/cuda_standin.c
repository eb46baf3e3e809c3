/* A stand-in of NVIDIA's libcuda.so.1 with the calls that checkpoint other processes; compiled by `cuda_standin.py`.

   What a driver knows is in the directory that BEAMER_CUDA_STANDIN names:

       devices/I          "UUID TOTAL", with UUID as 32 hexadecimal digits and TOTAL in bytes
       processes/PID      "STATE DEVICE BYTES", written by the process first: it has allocated so much
       seconds-CALL       how long a call takes
       seconds-per-byte-CALL
       refuse-CALL        the number of the CUresult that a call ends with
       crash-CALL         the caller dies in the call; the file is removed
       pause-CALL         the caller writes reached-CALL, and waits until the file is gone
       old-driver         there are no such calls
       wedges             a process whose restore has found too little memory is never restored, as by driver 580.95
       wedged-PID         such a process
       calls              a line per call: "PID CALL RESULT SECONDS", with its end by the monotonic clock
       lock               held while any of this is read and changed (flock)

   CALL is one of init, state, thread, lock, checkpoint, restore, unlock. As with the real one, the thread that saves and restores
   is one of the process itself: calls wait as long as it is stopped. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, OPERATING_SYSTEM = 304, ILLEGAL_STATE = 401 };
enum { NOT_FOUND = 500, NOT_READY = 600 };
enum { RUNNING, LOCKED, CHECKPOINTED };
static const char *const STATES[] = {"running", "locked", "checkpointed"};
#define MAX_DEVICES 64

typedef struct { char bytes[16]; } Uuid;
typedef struct { Uuid from, to; } Pair;
typedef struct { unsigned timeout_ms; } LockArgs;
typedef struct { Pair *pairs; unsigned count; } RestoreArgs;
typedef struct { int state, device; long long bytes; } Process;

static char *path_of(char *buffer, const char *format, ...) {
    const char *root = getenv("BEAMER_CUDA_STANDIN");
    int length = snprintf(buffer, 4096, "%s/", root ? root : "/nonexistent");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer + length, 4096 - length, format, arguments);
    va_end(arguments);
    return buffer;
}

static int has(const char *format, const char *call) {
    char path[4096];
    return access(path_of(path, format, call), F_OK) == 0;
}

static double number(const char *format, const char *call) {
    char path[4096];
    double value = 0;
    FILE *file = fopen(path_of(path, format, call), "r");
    if (file) {
        if (fscanf(file, "%lf", &value) != 1) value = 0;
        fclose(file);
    }
    return value;
}

static void rest(double seconds) {
    struct timespec left = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

static int take_lock(void) {
    char path[4096];
    int lock = open(path_of(path, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock >= 0) flock(lock, LOCK_EX);
    return lock;
}

static int read_process(int pid, Process *process) {
    char path[4096], state[32];
    FILE *file = kill(pid, 0) && errno == ESRCH ? NULL : fopen(path_of(path, "processes/%d", pid), "r");
    if (!file) return 0;
    int found = fscanf(file, "%31s %d %lld", state, &process->device, &process->bytes) == 3;
    fclose(file);
    for (process->state = 0; process->state < 3 && strcmp(state, STATES[process->state]); process->state++) {}
    return found && process->state < 3;
}

static void write_process(int pid, const Process *process) {
    char path[4096], new[4096];
    FILE *file = fopen(path_of(new, "processes/.%d", pid), "w");
    if (!file) return;
    fprintf(file, "%s %d %lld\n", STATES[process->state], process->device, process->bytes);
    fclose(file);
    rename(new, path_of(path, "processes/%d", pid));
}

static int read_device(int index, Uuid *uuid, long long *total) {
    char path[4096], text[64];
    FILE *file = fopen(path_of(path, "devices/%d", index), "r");
    if (!file) return 0;
    int found = fscanf(file, "%63s %lld", text, total) == 2 && strlen(text) == 32;
    fclose(file);
    for (int i = 0; found && i < 16; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        uuid->bytes[i] = (char)byte;
    }
    return found;
}

static int device_count(void) {
    Uuid uuid;
    long long total;
    int count = 0;
    while (count < MAX_DEVICES && read_device(count, &uuid, &total)) count++;
    return count;
}

static long long held(int device) {
    char path[4096];
    long long sum = 0;
    DIR *names = opendir(path_of(path, "processes"));
    for (struct dirent *entry; names && (entry = readdir(names));) {
        Process process;
        int pid = atoi(entry->d_name);
        if (pid && read_process(pid, &process) && process.device == device && process.state != CHECKPOINTED) sum += process.bytes;
    }
    if (names) closedir(names);
    return sum;
}

static void wait_until_it_runs(int pid) {
    for (;;) {
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) return;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
        fclose(file);
        if (state != 'T' && state != 't') return;
        rest(0.002);
    }
}

static int ended(int pid, const char *call, int result) {
    char path[4096], line[128];
    int log = open(path_of(path, "calls"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%d %s %d %.6f\n", pid, call, result, now.tv_sec + now.tv_nsec * 1e-9);
    if (log >= 0) {
        if (write(log, line, length) != length) abort();
        close(log);
    }
    return result;
}

/* Everything a test may have asked for that comes before the effect of a call. */
static int begun(const char *call, long long bytes) {
    char path[4096];
    if (has("pause-%s", call)) {
        FILE *file = fopen(path_of(path, "reached-%s", call), "w");
        if (file) fclose(file);
        while (has("pause-%s", call)) rest(0.002);
    }
    if (has("crash-%s", call)) {
        unlink(path_of(path, "crash-%s", call));
        raise(SIGKILL);
    }
    rest(number("seconds-%s", call) + bytes * number("seconds-per-byte-%s", call));
    return (int)number("refuse-%s", call);
}

static int changed(int pid, const char *call, int before, int after, int device) {
    Process process;
    if (!read_process(pid, &process)) return ended(pid, call, INVALID_VALUE);
    if (process.state != before) return ended(pid, call, ILLEGAL_STATE);
    char path[4096], wedged[32];
    snprintf(wedged, sizeof wedged, "%d", pid);
    if (before == CHECKPOINTED && has("wedged-%s", wedged)) return ended(pid, call, OPERATING_SYSTEM);
    wait_until_it_runs(pid);
    int refusal = begun(call, process.bytes);
    if (refusal) return ended(pid, call, refusal);
    int lock = take_lock(), result = SUCCESS;
    Uuid uuid;
    long long total = 0;
    if (!read_process(pid, &process)) result = INVALID_VALUE;
    else if (process.state != before) result = ILLEGAL_STATE;
    else {
        if (device >= 0) process.device = device;
        if (before == CHECKPOINTED && read_device(process.device, &uuid, &total) && held(process.device) + process.bytes > total)
            result = OUT_OF_MEMORY;
        if (result && has("%s", "wedges")) {
            FILE *file = fopen(path_of(path, "wedged-%s", wedged), "w");
            if (file) fclose(file);
        }
        if (!result) {
            process.state = after;
            write_process(pid, &process);
        }
    }
    if (lock >= 0) close(lock);
    return ended(pid, call, result);
}

int cuInit(unsigned flags) {
    (void)flags;
    int refusal = begun("init", 0);
    return refusal ? refusal : device_count() ? SUCCESS : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
    *version = has("%s", "old-driver") ? 12040 : 13000;
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    *count = device_count();
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < device_count() ? SUCCESS : 101;
}

int cuDeviceGetUuid_v2(Uuid *uuid, int device) {
    long long total;
    return read_device(device, uuid, &total) ? SUCCESS : 101;
}

int cuGetErrorName(int error, const char **name) {
    (void)error;
    *name = NULL;
    return INVALID_VALUE;
}

int cuCheckpointProcessGetState(int pid, int *state) {
    Process process;
    int refusal = begun("state", 0);
    if (refusal) return refusal;
    if (!read_process(pid, &process)) return INVALID_VALUE;
    *state = process.state;
    return SUCCESS;
}

int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    Process process;
    if (!read_process(pid, &process)) return INVALID_VALUE;
    *thread = pid;
    return SUCCESS;
}

int cuCheckpointProcessLock(int pid, LockArgs *args) {
    (void)args;
    return changed(pid, "lock", RUNNING, LOCKED, -1);
}

int cuCheckpointProcessCheckpoint(int pid, void *args) {
    (void)args;
    return changed(pid, "checkpoint", LOCKED, CHECKPOINTED, -1);
}

/* A map has to name every GPU that there is, once on either side. */
int cuCheckpointProcessRestore(int pid, RestoreArgs *args) {
    Process process;
    int onto = -1, count = device_count();
    if (args && args->count) {
        if (!read_process(pid, &process)) return ended(pid, "restore", INVALID_VALUE);
        int named[MAX_DEVICES] = {0}, taken[MAX_DEVICES] = {0};
        if ((int)args->count != count) return ended(pid, "restore", INVALID_VALUE);
        for (int i = 0; i < count; i++) {
            int from = -1, to = -1;
            for (int device = 0; device < count; device++) {
                Uuid uuid;
                long long total;
                read_device(device, &uuid, &total);
                if (!memcmp(&uuid, &args->pairs[i].from, sizeof uuid)) from = device;
                if (!memcmp(&uuid, &args->pairs[i].to, sizeof uuid)) to = device;
            }
            if (from < 0 || to < 0 || named[from]++ || taken[to]++) return ended(pid, "restore", INVALID_VALUE);
            if (from == process.device) onto = to;
        }
    }
    return changed(pid, "restore", CHECKPOINTED, LOCKED, onto);
}

int cuCheckpointProcessUnlock(int pid, void *args) {
    (void)args;
    return changed(pid, "unlock", LOCKED, RUNNING, -1);
}

static const struct { const char *name; void *function; } SYMBOLS[] = {
    {"cuInit", cuInit}, {"cuDriverGetVersion", cuDriverGetVersion}, {"cuDeviceGetCount", cuDeviceGetCount},
    {"cuDeviceGet", cuDeviceGet}, {"cuDeviceGetUuid", cuDeviceGetUuid_v2}, {"cuGetErrorName", cuGetErrorName},
    {"cuCheckpointProcessGetState", cuCheckpointProcessGetState},
    {"cuCheckpointProcessGetRestoreThreadId", cuCheckpointProcessGetRestoreThreadId},
    {"cuCheckpointProcessLock", cuCheckpointProcessLock}, {"cuCheckpointProcessCheckpoint", cuCheckpointProcessCheckpoint},
    {"cuCheckpointProcessRestore", cuCheckpointProcessRestore}, {"cuCheckpointProcessUnlock", cuCheckpointProcessUnlock},
};

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    int is_old = has("%s", "old-driver") && !strncmp(name, "cuCheckpoint", 12);
    *function = NULL;
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS && !is_old; i++)
        if (!strcmp(name, SYMBOLS[i].name)) *function = SYMBOLS[i].function;
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
