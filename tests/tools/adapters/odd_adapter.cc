// An adapter for tests of kvcheck_adapter.h: a linear cache of one row, with one oddity that the
// first argument names. It overrides nothing that it does not need.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/tools/process/child_time.h"
#include "tools/adapters/cpp/kvcheck_adapter.h"

namespace {

using kvcheck_adapter::Array;

std::string oddity;

void PrintEverywhere() {
  std::printf("printf\n");
  std::cout << "std::cout" << std::endl;
  const char text[] = "descriptor 1\n";
  if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) throw std::runtime_error("cannot write");
  char c = 0;
  if (read(STDIN_FILENO, &c, 1) != 0) throw kvcheck_adapter::AdapterError("stdin is not empty");
}

class OddCache : public kvcheck_adapter::Cache {
 public:
  explicit OddCache(const kvcheck_adapter::Setup& setup) : setup_(setup) {}

  void Append(const Array& k, const Array& v) override {
    if (oddity == "prints") PrintEverywhere();
    if (oddity == "throws_std") throw std::out_of_range("the library gave up");
    if (oddity == "throws_other") throw 7;
    if (oddity == "adapter_error") throw kvcheck_adapter::AdapterError("a case forgotten");
    if (k.type != setup_.x || k.extents.size() != 4 || k.extents[0] != 1 ||
        k.extents[1] != setup_.kv_heads || k.extents[3] != setup_.k_dim ||
        v.extents[3] != setup_.v_dim) {
      throw kvcheck_adapter::Refused("columns of another type or shape");
    }
    if (oddity == "slow") {
      // Each step is shorter than a limit of an hour; a sign is given at most every 200 ms.
      for (int i = 0; i < 3; ++i) {
        kvcheck::ChildTime::FromEnvironment()->Pass(
            std::chrono::minutes(40), kvcheck_adapter::Progress, std::chrono::milliseconds(200));
      }
    }
    offset_ += k.extents[2];
    queries_ = k.extents[2];
    if (oddity == "writes_inputs") const_cast<Array&>(v).bytes.back() ^= std::byte{1};
  }

  kvcheck_adapter::State Observe() const override {
    if (oddity == "blind") throw std::runtime_error("cannot look");
    kvcheck_adapter::State state;
    state.rows = 1;
    state.queries = queries_;
    state.offsets = std::vector<int64_t>{offset_};
    if (oddity == "misfit" && offset_ > 0) {
      state.retained = Array("b8", {1, offset_});
      state.retained->bytes.pop_back();
    }
    return state;
  }

 private:
  kvcheck_adapter::Setup setup_;
  int64_t offset_ = 0, queries_ = 0;
};

class OddAdapter : public kvcheck_adapter::Adapter {
 public:
  kvcheck_adapter::Greeting Greet() override {
    kvcheck_adapter::Greeting greeting;
    greeting.name = "odd";
    greeting.version = "1";
    greeting.kinds = {"cache", "attention", "codec"};
    if (oddity == "prints") PrintEverywhere();
    return greeting;
  }
  void Start(const kvcheck_adapter::Setup& setup) override { setup_ = setup; }
  std::unique_ptr<kvcheck_adapter::Cache> New(const kvcheck_adapter::NewCache& request) override {
    if (request.rows < 0 || request.layout.w.value_or(1) < 1) {
      throw kvcheck_adapter::Refused("not legal");
    }
    if (oddity == "makes_nothing") return nullptr;
    return std::make_unique<OddCache>(setup_);
  }
  // Of codecs, a round trip through a plain format of the rows' own type.
  kvcheck_adapter::CaseAnswer Answer(const kvcheck_adapter::CaseRequest& request) override {
    if (request.fields.Get<std::string>("kind") != "codec" ||
        request.fields.Get<std::string>("operation") != "round_trip") {
      throw kvcheck_adapter::Unsupported("only round trips");
    }
    const Array& x = request.inputs.at("x");
    if (oddity == "writes_inputs") const_cast<Array&>(x).bytes[0] ^= std::byte{1};
    kvcheck_adapter::CaseAnswer answer;
    answer.outputs["y"] = x;
    return answer;
  }

 private:
  kvcheck_adapter::Setup setup_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) oddity = argv[1];
  OddAdapter adapter;
  return kvcheck_adapter::Serve(adapter);
}
