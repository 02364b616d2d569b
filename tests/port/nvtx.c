/* The two functions of NVTX that the port calls; they record names and depth for tests. */
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT char nvtx_heard[4096]; /* the names of all ranges, each followed by ';' */
EXPORT int nvtx_depth;

EXPORT int nvtxRangePushA(const char* name);
EXPORT int nvtxRangePop(void);

int nvtxRangePushA(const char* name) {
  if (strlen(nvtx_heard) + strlen(name) + 2 < sizeof nvtx_heard) {
    strcat(nvtx_heard, name);
    strcat(nvtx_heard, ";");
  }
  return nvtx_depth++;
}

int nvtxRangePop(void) { return --nvtx_depth; }
