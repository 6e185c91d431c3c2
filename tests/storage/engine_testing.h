// What the tests of both engines share: a disk that outlives its engine, and an
// engine that can be restarted on it.

#ifndef RINGKV_TESTS_STORAGE_ENGINE_TESTING_H_
#define RINGKV_TESTS_STORAGE_ENGINE_TESTING_H_

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "gtest/gtest.h"
#include "storage/engine.h"
#include "storage/memory_engine.h"
#include "storage/rocksdb/rocksdb_engine.h"

namespace ringkv {

// A new directory, removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = testing::TempDir() + "ringkv-storage-XXXXXX";
    RINGKV_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One engine on one disk.
class EngineUnderTest {
 public:
  virtual ~EngineUnderTest() = default;
  virtual Engine& engine() = 0;
  // The process ends and starts again; what was handed to the operating system
  // is still there.
  virtual void Restart() = 0;
};

class MemoryEngineUnderTest final : public EngineUnderTest {
 public:
  Engine& engine() override { return *engine_; }
  void Restart() override { engine_->Crash(engine_->UnsyncedWrites()); }

 private:
  std::unique_ptr<MemoryEngine> engine_ = std::make_unique<MemoryEngine>();
};

class RocksDbEngineUnderTest final : public EngineUnderTest {
 public:
  RocksDbEngineUnderTest() { Open(); }
  Engine& engine() override { return *engine_; }
  void Restart() override {
    engine_.reset();
    Open();
  }

 private:
  void Open() {
    RocksDbOptions options;
    options.path = directory_.path();
    options.memory_bytes = 8 << 20;
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        RocksDbEngine::Open(options);
    if (!engine.ok()) ADD_FAILURE() << engine.status();
    RINGKV_CHECK(engine.ok());
    engine_ = *std::move(engine);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace ringkv

#endif  // RINGKV_TESTS_STORAGE_ENGINE_TESTING_H_
