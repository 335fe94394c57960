// An HTTP/2 and HTTP/1.1 server on nghttp2, by Node.js: another implementation than ours.
import http2 from 'node:http2';
import fs from 'node:fs';

const pem = fs.readFileSync(process.argv[2]);
const server = http2.createSecureServer({ key: pem, cert: pem, allowHTTP1: process.argv[3] !== 'h2', settings: { initialWindowSize: 65535 } });
server.on('request', (request, response) => {
  const url = request.url.split('?')[0];
  if (url === '/1k') {
    response.writeHead(200, { 'content-type': 'text/plain', 'x-method': request.method });
    response.end('x'.repeat(1024));
  } else if (url === '/echo') {
    response.writeHead(200, { 'x-sent': request.headers['content-length'] ?? 'unsaid' });
    request.pipe(response);
  } else if (url === '/count') {
    let count = 0;
    request.on('data', data => { count += data.length; });
    request.on('end', () => { response.end(String(count)); });
  } else if (url === '/large') {
    const piece = Buffer.alloc(65536, 'y');
    let left = Number(request.url.split('?')[1]);
    const more = () => {
      while (left > 0) {
        const size = Math.min(left, piece.length);
        left -= size;
        if (!response.write(piece.subarray(0, size))) { response.once('drain', more); return; }
      }
      response.end();
    };
    more();
  } else if (url === '/trailers') {
    response.writeHead(200, { trailer: 'x-sum' });
    response.write('body');
    response.addTrailers({ 'x-sum': '42' });
    response.end();
  } else if (url === '/headers') {
    response.end(JSON.stringify(request.headers));
  } else if (url === '/reset') {
    if (request.stream) request.stream.close(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM); else request.socket.destroy();
  } else if (url === '/goaway') {
    // Says that it takes no more, and still finishes what it has begun.
    response.writeHead(200);
    response.write('first,');
    if (request.stream) request.stream.session.goaway(0);
    setTimeout(() => response.end('second'), 100);
  } else {
    response.statusCode = 404;
    response.end('nothing here');
  }
});
server.on('error', () => {});
server.on('sessionError', () => {});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit(0));
process.stdin.resume();
