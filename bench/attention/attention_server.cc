// Our side of peers.py: attention and the probes as a process that answers lines, so that its
// rounds can take turns with those of other libraries.
//
//   attention_server [THREADS]
//
//   setup NAME KEY=VALUE...   kind=attention format=F tokens=N batch=N queries=N layout=head|token
//                             causal=0|1 calls=one|each portable=0|1 cold=BYTES, or kind=read
//                             bytes=N cold=BYTES, or kind=fma; answers the bytes of K and V, the
//                             bytes read, or the floating point operations. With `cold` there are
//                             as many layers as have so many bytes together, or parts of memory,
//                             and each run takes the next one
//   run NAME K                the seconds of K runs
//   check NAME                root mean square error over that of the values, of the worst layer
//   free                      forgets all
//
// Every answer is one line and begins with ok or error.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/attention/probes.h"
#include "bench/attention/stored_problem.h"
#include "optimized/attention/attention.h"

namespace kvcheck {
namespace {

struct Served {
  std::function<double()> seconds;
  std::function<double()> error;
};

class Server {
 public:
  explicit Server(int threads) : attention_(threads), read_(threads), fma_(threads) {}

  std::string Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, name;
    words >> command >> name;
    if (command == "free") {
      served_.clear();
      return "";
    }
    if (command == "setup") return fmt::format("{:.0f}", Setup(name, words));
    const auto found = served_.find(name);
    if (found == served_.end()) throw std::runtime_error("nothing is set up as " + name);
    if (command == "check") return fmt::format("{:.3e}", found->second.error());
    if (command != "run") throw std::runtime_error("there is no command " + command);
    int runs = 1;
    words >> runs;
    std::string seconds;
    for (int i = 0; i < runs; ++i) seconds += fmt::format(" {:.9f}", found->second.seconds());
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double Setup(const std::string& name, std::istringstream& words) {
    std::map<std::string, std::string> values;
    for (std::string word; words >> word;) {
      const size_t at = word.find('=');
      if (at == std::string::npos) throw std::runtime_error("KEY=VALUE, not " + word);
      values[word.substr(0, at)] = word.substr(at + 1);
    }
    const auto number = [&](const std::string& key, int64_t least, int64_t otherwise) {
      const int64_t value = values.count(key) != 0 ? std::stoll(values[key]) : otherwise;
      if (value < least) throw std::runtime_error(fmt::format("{} is below {}", key, least));
      return value;
    };
    const std::function<double()> none = [] { return 0.0; };
    const int64_t cold = number("cold", 0, 0);
    if (values["kind"] == "read") {
      const int64_t bytes = number("bytes", 1, 0);
      served_[name] = {[this, bytes, cold] { return read_.Seconds(bytes, cold); }, none};
      return static_cast<double>(bytes);
    }
    if (values["kind"] == "fma") {
      served_[name] = {[this] { return fma_.Seconds(); }, none};
      return fma_.Flops();
    }
    StoredProblem::Size size;
    size.format = values["format"];
    size.tokens = number("tokens", 1, 1);
    size.batch = number("batch", 1, 1);
    size.queries = number("queries", 1, 1);
    size.by_token = values["layout"] == "token";
    size.causal = number("causal", 0, 0) != 0;
    size.portable = number("portable", 0, 0) != 0;
    if (size.causal && size.queries > size.tokens) {
      throw std::runtime_error("more causal queries than tokens");
    }
    std::vector<std::shared_ptr<StoredProblem>> layers;
    int64_t bytes = 0;
    do {
      layers.push_back(std::make_shared<StoredProblem>(size));
      bytes += layers.back()->Bytes();
    } while (bytes < cold);
    const bool each = values["calls"] == "each";
    served_[name] = {[this, layers, each, next = size_t{0}]() mutable {
                       return Attend(*layers[next++ % layers.size()], each);
                     },
                     [this, layers, each] {
                       double worst = 0;
                       for (const auto& layer : layers) {
                         Attend(*layer, each);
                         const double error = layer->RelativeError();
                         if (std::isnan(error)) return error;
                         worst = std::max(worst, error);
                       }
                       return worst;
                     }};
    return static_cast<double>(layers.front()->Bytes());
  }

  double Attend(const StoredProblem& problem, bool each) {
    const auto batch = problem.batch();
    const auto start = Clock::now();
    if (each) {
      for (const auto& sequence : batch) attention_.Run(problem.shape(), {&sequence, 1});
    } else {
      attention_.Run(problem.shape(), batch);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  optimized::Attention attention_;
  ReadProbe read_;
  FmaProbe fma_;
  std::map<std::string, Served> served_;
};

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  kvcheck::Server server(argc > 1 ? std::clamp(std::atoi(argv[1]), 1, 64) : 2);
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer;
    try {
      answer = "ok " + server.Answer(line);
    } catch (const std::exception& error) {
      answer = std::string("error ") + error.what();
      std::replace(answer.begin(), answer.end(), '\n', ' ');
    }
    fmt::print("{}\n", answer);
    std::fflush(stdout);
  }
  return 0;
}
