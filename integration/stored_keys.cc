// What a node has on its disk: one line for each object, its keyspace id, and
// its token and key in hexadecimal, in the order of tokens. Reads the data
// directory of a node that is stopped, or of one that runs, as it is at that
// moment.
//
// usage: stored_keys DATA_DIR

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/db.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: stored_keys DATA_DIR\n");
    return 2;
  }
  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, {}}, {"data", {}}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  // A secondary instance reads what another process writes; it wants a folder
  // for a log of its own.
  std::string own =
      (std::filesystem::temp_directory_path() / "stored-keys-XXXXXX").string();
  if (mkdtemp(own.data()) == nullptr) {
    std::perror(own.c_str());
    return 1;
  }
  rocksdb::DBOptions options;
  options.max_open_files = -1;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenAsSecondary(
      options, argv[1], own, families, &handles, &opened);
  std::filesystem::remove_all(own);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[1], status.ToString().c_str());
    return 1;
  }
  const std::unique_ptr<rocksdb::DB> db(opened);
  const std::unique_ptr<rocksdb::Iterator> entry(
      db->NewIterator(rocksdb::ReadOptions(), handles[1]));
  // Keyspace id (4 bytes) and token (8 bytes), big-endian, then the key.
  constexpr size_t kKeyspaceBytes = 4;
  constexpr size_t kPrefixBytes = 12;
  int result = 0;
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    const rocksdb::Slice key = entry->key();
    if (key.size() <= kPrefixBytes) {
      std::fprintf(stderr, "an entry of %zu bytes is none of an object\n",
                   key.size());
      result = 1;
      break;
    }
    uint32_t keyspace = 0;
    for (size_t i = 0; i < kKeyspaceBytes; ++i) {
      keyspace = keyspace << 8 | static_cast<uint8_t>(key[i]);
    }
    std::string line = std::to_string(keyspace) + " ";
    for (size_t i = kKeyspaceBytes; i < key.size(); ++i) {
      if (i == kPrefixBytes) line += ' ';
      constexpr char kDigits[] = "0123456789abcdef";
      line += kDigits[static_cast<uint8_t>(key[i]) >> 4];
      line += kDigits[static_cast<uint8_t>(key[i]) & 15];
    }
    std::puts(line.c_str());
  }
  if (!entry->status().ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[1],
                 entry->status().ToString().c_str());
    result = 1;
  }
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    db->DestroyColumnFamilyHandle(handle);
  }
  return result;
}
