/* The header as C99 and as C++17 without extensions: it needs nothing before it. */
#include "ramfold.h"

/* Each structure is as long as the library's. */
typedef char memory_config_has_48_bytes[sizeof(ramfold_memory_config) == 48 ? 1 : -1];
typedef char memory_stats_has_40_bytes[sizeof(ramfold_memory_stats) == 40 ? 1 : -1];
typedef char pool_config_has_40_bytes[sizeof(ramfold_pool_config) == 40 ? 1 : -1];
typedef char pool_stats_has_64_bytes[sizeof(ramfold_pool_stats) == 64 ? 1 : -1];
typedef char bytes_has_16_bytes[sizeof(ramfold_bytes) == 16 ? 1 : -1];
typedef char pager_config_has_24_bytes[sizeof(ramfold_pager_config) == 24 ? 1 : -1];
typedef char region_config_has_56_bytes[sizeof(ramfold_region_config) == 56 ? 1 : -1];
typedef char region_stats_has_112_bytes[sizeof(ramfold_region_stats) == 112 ? 1 : -1];

int main(void)
{
    return ramfold_version() == RAMFOLD_VERSION ? 0 : 1;
}
