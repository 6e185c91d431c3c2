// The version that programs print and nodes tell each other.

#ifndef RINGKV_SERVER_RPC_VERSION_H_
#define RINGKV_SERVER_RPC_VERSION_H_

namespace ringkv {

#ifdef RINGKV_VERSION
inline constexpr char kVersion[] = RINGKV_VERSION;
#else
inline constexpr char kVersion[] = "0.1.0";
#endif

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_VERSION_H_
