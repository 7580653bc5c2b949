/* CUDA's runtime without a card, preloaded before PyTorch's: device memory is host memory, and kernels do nothing.

   Allocations, device checks, streams, copies, launches and waits are PyTorch's own and are counted here; simulation.py
   reads the counts, and computes on the CPU what the kernels would have. Headers come with torch's packages. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
typedef cudaError_t R;
typedef cudaStream_t Stream;

/* launches; waits of the host for the card; copies from page-locked and from pageable memory, and back */
typedef struct { long long launches, waits, pinned, pageable, back; } Counts;
API Counts card_counts;
#define COUNT(what) __sync_fetch_and_add(&card_counts.what, 1)

static __thread int current;
static __thread R last;
static R fail(R error) { return last = error; }

/* --- memory --- */

enum { HOST = 1, DEVICE = 2 };
typedef struct { char *begin; size_t size; int kind; } Block;
static Block *blocks;
static size_t used, capacity;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The block that holds an address, last one first; NULL if it is the host's own. To be called under the lock. */
static Block *find(const void *p) {
  for (size_t i = used; i-- > 0;)
    if ((char *)p >= blocks[i].begin && (char *)p < blocks[i].begin + blocks[i].size) return &blocks[i];
  return NULL;
}
static Block block_of(const void *p) {
  pthread_mutex_lock(&lock);
  Block *block = find(p), copy = block ? *block : (Block){0};
  pthread_mutex_unlock(&lock);
  return copy;
}
static R add(void *p, size_t size, int kind) {
  pthread_mutex_lock(&lock);
  if (used == capacity) blocks = realloc(blocks, (capacity = capacity ? 2 * capacity : 1024) * sizeof(Block));
  blocks[used++] = (Block){p, size, kind};
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}
static R drop(void *p, int owned) {
  pthread_mutex_lock(&lock);
  Block *block = find(p);
  if (block) *block = blocks[--used];
  pthread_mutex_unlock(&lock);
  if (block && owned) free(p);
  return cudaSuccess;
}
static R allocate(void **p, size_t size, int kind) {
  if (posix_memalign(p, 4096, size ? size : 1)) return fail(cudaErrorMemoryAllocation);
  return add(*p, size ? size : 1, kind);
}
API R cudaMalloc(void **p, size_t size) { return allocate(p, size, DEVICE); }
API R cudaFree(void *p) { return drop(p, 1); }
API R cudaHostAlloc(void **p, size_t size, unsigned flags) { return allocate(p, size, HOST); }
API R cudaFreeHost(void *p) { return drop(p, 1); }
API R cudaHostRegister(void *p, size_t size, unsigned flags) { return add(p, size, HOST); }
API R cudaHostUnregister(void *p) { return drop(p, 0); }
API R cudaMemGetInfo(size_t *available, size_t *total) { *available = *total = 80ull << 30; return cudaSuccess; }
API R cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  static const int types[] = {cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice};
  int kind = block_of(p).kind;
  memset(a, 0, sizeof *a);
  a->type = types[kind];
  if (kind) a->devicePointer = (void *)p;
  if (kind == HOST) a->hostPointer = (void *)p;
  return cudaSuccess;
}
static void copied(void *to, const void *from) {
  int there = block_of(to).kind == DEVICE, source = block_of(from).kind;
  if (there && source != DEVICE) { if (source == HOST) COUNT(pinned); else COUNT(pageable); }
  if (!there && source == DEVICE) COUNT(back);
}
API R cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, Stream s) {
  copied(to, from);
  memmove(to, from, n);
  return cudaSuccess;
}
API R cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
  COUNT(waits);
  return cudaMemcpyAsync(to, from, n, kind, NULL);
}
API R cudaMemcpy2DAsync(void *to, size_t step, const void *from, size_t pace, size_t width, size_t height,
                        enum cudaMemcpyKind kind, Stream s) {
  copied(to, from);
  for (size_t i = 0; i < height; i++) memmove((char *)to + i * step, (const char *)from + i * pace, width);
  return cudaSuccess;
}
API R cudaMemset(void *p, int value, size_t n) { memset(p, value, n); return cudaSuccess; }
API R cudaMemsetAsync(void *p, int value, size_t n, Stream s) { return cudaMemset(p, value, n); }
static char symbols[1 << 16]; /* stands for variables of the card */
API R cudaGetSymbolAddress(void **p, const void *symbol) { *p = symbols; return cudaSuccess; }
API R cudaMemcpyToSymbol(const void *to, const void *from, size_t n, size_t at, enum cudaMemcpyKind kind) {
  COUNT(waits);
  return cudaSuccess;
}

/* --- the device --- */

API R cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
API R cudaGetDevice(int *device) { *device = current; return cudaSuccess; }
API R cudaSetDevice(int device) { return device ? fail(cudaErrorInvalidDevice) : cudaSuccess; }
API R cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  if (device) return fail(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  strcpy(p->name, "simulated card");
  p->totalGlobalMem = 80ull << 30, p->major = 9, p->warpSize = 32, p->multiProcessorCount = 132;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = 232448, p->sharedMemPerMultiprocessor = 233472;
  p->maxThreadsPerMultiProcessor = 2048, p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->memPitch = 2147483647, p->textureAlignment = 512, p->unifiedAddressing = p->canMapHostMemory = 1;
  p->l2CacheSize = 50 << 20, p->maxBlocksPerMultiProcessor = 32, p->concurrentKernels = 1, p->memoryBusWidth = 5120;
  return cudaSuccess;
}
API R cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device) {
  static const int known[][2] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024}, {cudaDevAttrMaxBlockDimX, 1024}, {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64}, {cudaDevAttrMaxGridDimX, 2147483647}, {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535}, {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448}, {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
    {cudaDevAttrWarpSize, 32}, {cudaDevAttrMaxRegistersPerBlock, 65536}, {cudaDevAttrMultiProcessorCount, 132},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536}, {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrComputeCapabilityMajor, 9}, {cudaDevAttrUnifiedAddressing, 1}, {cudaDevAttrConcurrentKernels, 1},
  };
  *value = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) if (known[i][0] == (int)name) *value = known[i][1];
  return cudaSuccess;
}
API R cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return cudaSuccess; }
API R cudaDeviceGetPCIBusId(char *text, int n, int device) { snprintf(text, n, "0000:01:00.0"); return cudaSuccess; }
API R cudaDeviceGetStreamPriorityRange(int *least, int *most) {
  if (least) *least = 0;
  if (most) *most = -5;
  return cudaSuccess;
}
API R cudaDeviceSynchronize(void) { COUNT(waits); return cudaSuccess; }
API R cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
API R cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
API R cudaGetLastError(void) { R error = last; last = cudaSuccess; return error; }
API R cudaPeekAtLastError(void) { return last; }
API const char *cudaGetErrorName(R error) { return error ? "SimulatedError" : "cudaSuccess"; }
API const char *cudaGetErrorString(R error) { return error ? "an error of the simulated card" : "no error"; }

/* --- streams and events --- */

API R cudaStreamCreateWithPriority(Stream *s, unsigned flags, int priority) { *s = calloc(1, 8); return cudaSuccess; }
API R cudaStreamCreateWithFlags(Stream *s, unsigned flags) { return cudaStreamCreateWithPriority(s, 0, 0); }
API R cudaStreamDestroy(Stream s) { free(s); return cudaSuccess; }
API R cudaStreamGetPriority(Stream s, int *priority) { *priority = 0; return cudaSuccess; }
API R cudaStreamQuery(Stream s) { return cudaSuccess; }
API R cudaStreamSynchronize(Stream s) { COUNT(waits); return cudaSuccess; }
API R cudaStreamWaitEvent(Stream s, cudaEvent_t e, unsigned flags) { return cudaSuccess; }
API R cudaStreamIsCapturing(Stream s, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
API R cudaStreamGetCaptureInfo(Stream s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
                               const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n) {
  if (id) *id = 0;
  if (n) *n = 0;
  return status ? cudaStreamIsCapturing(s, status) : cudaSuccess;
}
API R cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return cudaSuccess; }
API R cudaLaunchHostFunc(Stream s, cudaHostFn_t f, void *data) { f(data); return cudaSuccess; }
API R cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { *e = calloc(1, sizeof(double)); return cudaSuccess; }
API R cudaEventDestroy(cudaEvent_t e) { free(e); return cudaSuccess; }
API R cudaEventRecord(cudaEvent_t e, Stream s) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *(double *)e = t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
  return cudaSuccess;
}
API R cudaEventRecordWithFlags(cudaEvent_t e, Stream s, unsigned flags) { return cudaEventRecord(e, s); }
API R cudaEventQuery(cudaEvent_t e) { return cudaSuccess; }
API R cudaEventSynchronize(cudaEvent_t e) { COUNT(waits); return cudaSuccess; }
API R cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = *(double *)b - *(double *)a;
  return cudaSuccess;
}

/* --- kernels: registered by every library that has some, launched into the void --- */

static void *binary[1];
API void **__cudaRegisterFatBinary(void *f) { return binary; }
API void __cudaRegisterFatBinaryEnd(void **h) {}
API void __cudaUnregisterFatBinary(void **h) {}
API void __cudaRegisterFunction(void **h, const char *f, char *d, const char *n, int l, void *t, void *b, void *x, void *g,
                                int *w) {}
API void __cudaRegisterVar(void **h, char *v, char *d, const char *n, int e, size_t size, int constant, int global) {}
typedef struct { dim3 grid, block; size_t shared; void *stream; } Shape;
static __thread Shape shapes[16];
static __thread int depth;
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  shapes[depth++ & 15] = (Shape){grid, block, shared, stream};
  return 0;
}
API R __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  Shape shape = shapes[--depth & 15];
  *grid = shape.grid, *block = shape.block, *shared = shape.shared, *(void **)stream = shape.stream;
  return cudaSuccess;
}
API R __cudaGetKernel(cudaKernel_t *kernel, const void *f) { *kernel = (cudaKernel_t)f; return cudaSuccess; }
#define LAUNCH(name, ...) API R name(__VA_ARGS__) { COUNT(launches); return cudaSuccess; }
LAUNCH(__cudaLaunchKernel, cudaKernel_t k, dim3 g, dim3 b, void **a, size_t n, Stream s)
LAUNCH(cudaLaunchKernel, const void *f, dim3 g, dim3 b, void **a, size_t n, Stream s)
LAUNCH(cudaLaunchKernelExC, const cudaLaunchConfig_t *c, const void *f, void **a)
API R cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 90;
  return cudaSuccess;
}
API R cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute name, int value) { return cudaSuccess; }
API R cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute n, int v, int d) { return cudaSuccess; }
API R cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned flags) {
  *n = 2;
  return cudaSuccess;
}
API R cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) { *n = 2; return cudaSuccess; }

/* --- the driver: what PyTorch asks for by name --- */

static int unsupported(void) { return 801; }
API int cuInit(unsigned flags) { return 0; }
API int cuCtxGetCurrent(void **context) { *context = symbols; return 0; }
API int cuCtxSetCurrent(void *context) { return 0; }
API int cuDeviceGet(int *device, int n) { *device = n; return 0; }
API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
API int cuDevicePrimaryCtxRetain(void **context, int device) { *context = symbols; return 0; }
API int cuGetErrorString(int error, const char **text) { *text = "an error of the simulated card"; return 0; }
API int cuPointerGetAttribute(void *value, int name, size_t p) { memset(value, 0, 4); return 0; }
API int cuMemGetAddressRange(size_t *begin, size_t *size, size_t p) {
  Block block = block_of((void *)p);
  *begin = (size_t)block.begin, *size = block.size;
  return 0;
}
API R cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version, unsigned long long flags,
                                       enum cudaDriverEntryPointQueryResult *found) {
  void *here = dlsym(RTLD_DEFAULT, name);
  *f = here ? here : (void *)unsupported;
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
/* libcaffe2_nvrtc and Triton link against these; nothing here calls them. */
#define UNUSED(name) API int name(void) { return unsupported(); }
UNUSED(cuDeviceGetAttribute) UNUSED(cuFuncGetAttribute) UNUSED(cuFuncSetAttribute) UNUSED(cuFuncSetCacheConfig)
UNUSED(cuLaunchCooperativeKernel) UNUSED(cuLaunchKernel) UNUSED(cuLinkAddData_v2) UNUSED(cuLinkComplete)
UNUSED(cuLinkCreate_v2) UNUSED(cuModuleGetFunction) UNUSED(cuModuleLoad) UNUSED(cuModuleLoadData)
UNUSED(cuModuleLoadDataEx) UNUSED(cuModuleUnload) UNUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
UNUSED(cuTensorMapEncodeTiled) UNUSED(cuLogsRegisterCallback) UNUSED(cuLogsUnregisterCallback)
