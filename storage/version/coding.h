// The field coding of stored records; see base/coding.h, which other modules
// share.

#ifndef RINGKV_STORAGE_VERSION_CODING_H_
#define RINGKV_STORAGE_VERSION_CODING_H_

#include "base/coding.h"  // IWYU pragma: export

#endif  // RINGKV_STORAGE_VERSION_CODING_H_
