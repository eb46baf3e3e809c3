/* A stand-in of libnvidia-ml.so.1, with what `beamer/nvidia/nvml.py` calls of it.

   Built with -DBRANCH=N it lacks the functions that came after that branch of the driver. It reads the file that the variable
   NVML_STANDIN names at every call; a line is one of

       driver VERSION
       gpu UUID TOTAL FREE NAME ...     the next index
       mig                              the last GPU is in MIG mode
       slice UUID TOTAL FREE NAME ...   of the last GPU; "slice -": a number that is not in use
       process PID UUID BYTES           BYTES "-": not known; on a GPU or slice
       mps PID UUID BYTES               a client of MPS
       fail FUNCTION CODE               the function answers with this error

   and the directory NVML_STANDIN.d, if there is one, which has such lines in files of any name. Where BEAMER_CUDA_STANDIN names
   the directory of the other stand-in, `cuda_standin.c`, its GPUs, and what its processes hold there, come before these. */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BRANCH
#define BRANCH 580
#endif
#define MOST 64
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7

typedef struct { char uuid[96], name[96]; unsigned long long total, free; int parent, slot, mig, slots; } Device;
typedef struct { unsigned pid; char uuid[96]; unsigned long long bytes; int mps; } Process;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { unsigned long long total, free, used; } Memory;

static Device devices[MOST]; /* a handle points into this: their places stay as long as the file's lines do */
static Process processes[MOST];
static int device_count, process_count, failure;
static char driver[80];

static void read_lines(const char *path, const char *function) {
    static int gpu;
    char line[512], word[96], uuid[96], bytes[32];
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (!device_count) gpu = -1;
    while (fgets(line, sizeof line, file)) {
        Device one = {.parent = -1};
        int code;
        if (sscanf(line, "driver %79s", driver) == 1) continue;
        if (sscanf(line, "gpu %95s %llu %llu %95[^\n]", one.uuid, &one.total, &one.free, one.name) == 4) {
            gpu = device_count;
            devices[device_count++] = one;
        } else if (!strncmp(line, "mig", 3)) {
            devices[gpu].mig = 1;
        } else if (!strncmp(line, "slice -", 7)) {
            devices[gpu].slots++;
        } else if (sscanf(line, "slice %95s %llu %llu %95[^\n]", one.uuid, &one.total, &one.free, one.name) == 4) {
            one.parent = gpu;
            one.slot = devices[gpu].slots++;
            devices[device_count++] = one;
        } else if (sscanf(line, "fail %95s %d", word, &code) == 2) {
            if (!strcmp(word, function)) failure = code;
        } else if (process_count < MOST) {
            Process *new = &processes[process_count];
            if (sscanf(line, "%95s %u %95s %31s", word, &new->pid, uuid, bytes) != 4) continue;
            new->mps = !strcmp(word, "mps");
            if (!new->mps && strcmp(word, "process")) continue;
            strcpy(new->uuid, uuid);
            new->bytes = strcmp(bytes, "-") ? strtoull(bytes, NULL, 10) : ~0ull;
            process_count++;
        }
    }
    fclose(file);
}

static void read_cuda_standin(const char *root) {
    int first = device_count;
    char path[2048], digits[64], state[32];
    for (Device one = {.parent = -1};; one = (Device){.parent = -1}) {
        snprintf(path, sizeof path, "%s/devices/%d", root, device_count - first);
        FILE *file = fopen(path, "r");
        if (!file) break;
        if (fscanf(file, "%63s %llu", digits, &one.total) == 2) {
            snprintf(one.uuid, sizeof one.uuid, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8, digits + 12, digits + 16, digits + 20);
            strcpy(one.name, "stand-in");
            one.free = one.total;
            devices[device_count++] = one;
        }
        fclose(file);
    }
    snprintf(path, sizeof path, "%s/processes", root);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        unsigned long long bytes;
        int pid = atoi(entry->d_name), device;
        snprintf(path, sizeof path, "%s/processes/%s", root, entry->d_name);
        FILE *file = pid && !(kill(pid, 0) && errno == ESRCH) && process_count < MOST ? fopen(path, "r") : NULL;
        if (!file) continue;
        if (fscanf(file, "%31s %d %llu", state, &device, &bytes) == 3 && strcmp(state, "checkpointed")) {
            Process *new = &processes[process_count++];
            *new = (Process){.pid = (unsigned)pid, .bytes = bytes};
            strcpy(new->uuid, devices[first + device].uuid);
            devices[first + device].free -= bytes;
        }
        fclose(file);
    }
    if (directory) closedir(directory);
}

/* Read everything anew and return the error with which a function is to answer. */
static int begin(const char *function) {
    const char *path = getenv("NVML_STANDIN"), *cuda = getenv("BEAMER_CUDA_STANDIN");
    char name[1024];
    device_count = process_count = failure = 0;
    strcpy(driver, "580.0");
    if (cuda) read_cuda_standin(cuda);
    if (!path) return 0;
    read_lines(path, function);
    snprintf(name, sizeof name, "%s.d", path);
    DIR *directory = opendir(name);
    if (directory) {
        for (struct dirent *entry; (entry = readdir(directory));) {
            char file[2048];
            if (entry->d_name[0] == '.') continue;
            snprintf(file, sizeof file, "%s.d/%s", path, entry->d_name);
            read_lines(file, function);
        }
        closedir(directory);
    }
    return failure;
}

#define BEGIN { int failed = begin(__func__); if (failed) return failed; }

int nvmlInit_v2(void) { BEGIN return 0; }
#if BRANCH >= 396
int nvmlInitWithFlags(unsigned flags) { BEGIN (void)flags; return 0; }
#endif
int nvmlShutdown(void) { BEGIN return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) { BEGIN snprintf(version, length, "%s", driver); return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN
    *count = 0;
    for (int i = 0; i < device_count; i++) *count += devices[i].parent < 0;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    BEGIN
    for (int i = 0; i < device_count; i++)
        if (devices[i].parent < 0 && !index--) { *handle = &devices[i]; return 0; }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned length) { BEGIN snprintf(uuid, length, "%s", device->uuid); return 0; }
int nvmlDeviceGetName(Device *device, char *name, unsigned length) { BEGIN snprintf(name, length, "%s", device->name); return 0; }

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    BEGIN
    *memory = (Memory){device->total, device->free, device->total - device->free};
    return 0;
}

static int list(Device *device, int mps, unsigned *count, ProcessInfo *found) {
    unsigned size = *count, seen = 0;
    for (int i = 0; i < process_count; i++) {
        if (processes[i].mps != mps || strcmp(processes[i].uuid, device->uuid)) continue;
        if (seen < size) found[seen] = (ProcessInfo){processes[i].pid, processes[i].bytes, ~0u, ~0u};
        seen++;
    }
    *count = seen;
    return seen > size ? INSUFFICIENT_SIZE : 0;
}

#if BRANCH >= 470
int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *count, ProcessInfo *found) {
    BEGIN return list(device, 0, count, found);
}
#endif
#if BRANCH >= 510
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, ProcessInfo *found) {
    BEGIN return list(device, 0, count, found);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, unsigned *count, ProcessInfo *found) {
    BEGIN return list(device, 1, count, found);
}
#endif

#if BRANCH >= 450
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    BEGIN
    if (!strstr(device->name, "H200") && !device->mig) return NOT_SUPPORTED;
    *current = *pending = (unsigned)device->mig;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { BEGIN *count = (unsigned)device->slots; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, void **handle) {
    BEGIN
    for (int i = 0; i < device_count; i++)
        if (devices[i].parent == device - devices && devices[i].slot == (int)index) { *handle = &devices[i]; return 0; }
    return NOT_FOUND;
}
#endif
